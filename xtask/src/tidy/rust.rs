//! Tells code from comments and literals in Rust source, which is all that the rules need of it.
//!
//! Not a parser: it knows where comments, strings and characters begin and end, nothing else.

/// One source text, twice, both as long as the original and with its lines: the code without
/// comments and literals, and the comments without the code.
pub(super) struct Masked {
    pub(super) code: String,
    pub(super) comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Separates `source`.
pub(super) fn mask(source: &str) -> Masked {
    let bytes = source.as_bytes();
    let (mut code, mut comments) = (Vec::with_capacity(bytes.len()), Vec::with_capacity(bytes.len()));
    let mut at = 0;
    while at < bytes.len() {
        let (kind, length) = token(&bytes[at..]);
        assert!(length > 0, "every token has a byte");
        let text = &bytes[at..(at + length).min(bytes.len())];
        copy_if(kind == Kind::Code, text, &mut code);
        copy_if(kind == Kind::Comment, text, &mut comments);
        at += text.len();
    }
    Masked { code: text_of(code), comments: text_of(comments) }
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("tokens begin and end at ASCII bytes, and are copied or blanked whole")
}

fn copy_if(wanted: bool, text: &[u8], into: &mut Vec<u8>) {
    into.extend(text.iter().map(|&byte| if wanted || byte == b'\n' { byte } else { b' ' }));
}

/// The kind and length of what stands at the beginning of `rest`.
fn token(rest: &[u8]) -> (Kind, usize) {
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        return (Kind::Comment, length);
    }
    if rest.starts_with(b"/*") {
        return (Kind::Comment, block_comment(rest));
    }
    match rest[0] {
        b'"' => (Kind::Literal, quoted(rest, b'"')),
        b'\'' => character(rest).map_or((Kind::Code, 1), |length| (Kind::Literal, length)),
        byte if is_word(byte) => word_or_raw_string(rest),
        _ => (Kind::Code, 1),
    }
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// From one quote to the next that has no backslash before it.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a character literal; none if the quote begins a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    let first = rest.get(1)?;
    let width = match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// A word, unless it is the prefix of a raw string.
fn word_or_raw_string(rest: &[u8]) -> (Kind, usize) {
    let length = rest.iter().position(|&byte| !is_word(byte)).unwrap_or(rest.len());
    let hashes = rest[length..].iter().take_while(|&&byte| byte == b'#').count();
    let is_prefix = matches!(&rest[..length], b"r" | b"br" | b"cr");
    if !is_prefix || rest.get(length + hashes) != Some(&b'"') {
        return (Kind::Code, length);
    }
    let body = length + hashes + 1;
    let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let end = rest[body..].windows(closing.len()).position(|window| window == closing);
    (Kind::Literal, end.map_or(rest.len(), |end| body + end + closing.len()))
}

/// The lines (from 1) in which `word` stands as code would have it: not inside a longer word.
pub(super) fn lines_with<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.lines().enumerate().filter(move |(_, line)| has_word(line, word)).map(|(index, _)| index + 1)
}

/// Whether `word` stands in `line` with no letter joined to an end of it that is a letter itself.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let (bytes, wanted) = (line.as_bytes(), word.as_bytes());
    let joined = |outside: Option<&u8>, inside: u8| is_word(inside) && outside.is_some_and(|&b| is_word(b));
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|index| bytes.get(index));
        let after = bytes.get(at + wanted.len());
        !joined(before, wanted[0]) && !joined(after, wanted[wanted.len() - 1])
    })
}
