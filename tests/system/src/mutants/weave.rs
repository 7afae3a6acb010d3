//! One text with many mistakes in it, each of which is made only in a process that was told its number.
//!
//! A function in which mistakes are drawn gets a body for each of them beside its own, and asks at its head which it
//! is to take. What cargo-mutants would change in the file is changed in that body, character for character, so that
//! every kind of mistake goes the same way and none has to be understood. Mistakes outside of functions, or in one
//! inside of another that has some, are left out. A function that cannot have a second body (a constant one; one that
//! gives a closure) does not compile, and lines say whose body that was.

use std::collections::BTreeMap;
use std::ops::Range;

use super::drawing::{Mutant, Position, Span};

/// The module that is asked; each package with mistakes gets it.
pub(super) const SWITCH: &str = include_str!("weave/switch.rs.in");
/// Its name there.
pub(super) const MODULE: &str = "mutant_switch";

/// A file with mistakes.
#[derive(Debug)]
pub(super) struct Woven {
    pub(super) text: String,
    functions: Vec<Bodies>,
}

/// A function with mistakes, in lines of the new text that count from 1.
#[derive(Debug)]
struct Bodies {
    lines: Range<usize>,
    /// Mutants by their numbers, and where each has its body.
    of: Vec<(usize, Range<usize>)>,
}

impl Woven {
    /// Those that are in the text.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.functions.iter().flat_map(|function| function.of.iter().map(|(number, _)| *number))
    }

    /// Whose fault it is when a line does not compile: that of one mutant, or of all in the function.
    pub(super) fn blamed(&self, line: usize) -> Vec<usize> {
        let Some(function) = self.functions.iter().find(|function| function.lines.contains(&line)) else {
            return Vec::new();
        };
        match function.of.iter().find(|(_, lines)| lines.contains(&line)) {
            Some((number, _)) => vec![*number],
            None => function.of.iter().map(|(number, _)| *number).collect(),
        }
    }
}

/// Makes the mistakes of one file.
pub(super) fn weave(source: &str, mutants: &[&Mutant]) -> Woven {
    let mut by_function: BTreeMap<Span, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        if let Some(function) = &mutant.function {
            by_function.entry(function.span).or_default().push(mutant);
        }
    }
    let mut woven = Woven { text: String::new(), functions: Vec::new() };
    let mut done = 0;
    for (span, members) in by_function {
        let Some(body) = body(source, span).filter(|body| body.start >= done) else { continue };
        woven.text += &source[done..body.start];
        woven.add(source, &body, &members);
        done = body.end;
    }
    woven.text += &source[done..];
    woven
}

impl Woven {
    /// Writes all bodies of a function, its own last.
    fn add(&mut self, source: &str, body: &Range<usize>, members: &[&Mutant]) {
        let first = self.next_line();
        let mut of = Vec::new();
        for mutant in members {
            let place = offset(source, mutant.span.start)..offset(source, mutant.span.end);
            let (before, behind) = (&source[body.start..place.start], &source[place.end..body.end]);
            let (number, replacement) = (mutant.place.number, &mutant.replacement);
            self.text += "\n";
            let begin = self.next_line();
            self.text +=
                &format!("if crate::{MODULE}::is_on({number}) {{\n{before}{replacement}{behind}\n}} else ");
            of.push((number, begin..self.next_line()));
        }
        self.text += &format!("\n{{\n{}\n}}\n", &source[body.clone()]);
        self.functions.push(Bodies { lines: first..self.next_line() + 1, of });
    }

    /// The line in which the next character will be.
    fn next_line(&self) -> usize {
        self.text.matches('\n').count() + 1
    }
}

/// What is between the braces of a function. Its head has no braces, but what is said about it may.
fn body(source: &str, function: Span) -> Option<Range<usize>> {
    let (start, end) = (offset(source, function.start), offset(source, function.end));
    let mut at = start;
    for line in source[start..end].split_inclusive('\n') {
        let is_said_about = line.trim_start().starts_with("//") || line.trim_start().starts_with('#');
        if let Some(brace) = line.find('{').filter(|_| !is_said_about) {
            return Some(at + brace + 1..end - 1);
        }
        at += line.len();
    }
    None
}

/// Where in the bytes of a text a position is.
fn offset(source: &str, position: Position) -> usize {
    let line = source.split_inclusive('\n').take(position.line - 1).map(str::len).sum::<usize>();
    let before = source[line..].chars().take(position.column - 1);
    line + before.map(char::len_utf8).sum::<usize>()
}

#[cfg(test)]
mod tests;
