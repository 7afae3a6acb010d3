//! Puts many mutants into one text. Each is only active in a process that was given its number.
//!
//! A function with mutants gets a body for each of them in addition to its own, and selects one at its start. The
//! change of cargo-mutants is applied to that body, character for character, so that all kinds of mutants are handled
//! in the same way. Mutants outside of functions, or in a nested function whose outer function has mutants, are left
//! out. A function that cannot have a second body (a constant function, or one that returns a closure) does not
//! compile, and line numbers tell whose body that was.

use std::collections::BTreeMap;
use std::ops::Range;

use super::drawing::{Mutant, Position, Span};

/// The module that selects the mutant. Each package with mutants gets it.
pub(super) const SWITCH: &str = include_str!("weave/switch.rs.in");
/// The name of the module.
pub(super) const MODULE: &str = "mutant_switch";

/// A file with mutants.
#[derive(Debug)]
pub(super) struct Woven {
    pub(super) text: String,
    functions: Vec<Bodies>,
}

/// A function with mutants, in lines of the new text that count from 1.
#[derive(Debug)]
struct Bodies {
    lines: Range<usize>,
    /// The numbers of the mutants, and the lines of each body.
    of: Vec<(usize, Range<usize>)>,
}

impl Woven {
    /// The mutants in the text.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.functions.iter().flat_map(|function| function.of.iter().map(|(number, _)| *number))
    }

    /// The mutants that may be at fault if a line does not compile: one mutant, or all of the function.
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

/// Puts the mutants into one file.
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

    /// The line of the next character.
    fn next_line(&self) -> usize {
        self.text.matches('\n').count() + 1
    }
}

/// The text between the braces of a function. Its head has no braces, but its comments and attributes may.
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

/// The byte offset of a position in a text.
fn offset(source: &str, position: Position) -> usize {
    let line = source.split_inclusive('\n').take(position.line - 1).map(str::len).sum::<usize>();
    let before = source[line..].chars().take(position.column - 1);
    line + before.map(char::len_utf8).sum::<usize>()
}

#[cfg(test)]
mod tests;
