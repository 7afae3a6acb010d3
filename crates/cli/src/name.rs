//! File names, which may be any bytes and are UTF-8 most of the time.

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path that can be encoded in JSON without loss: as a string or, if it is not UTF-8, as an array of bytes. Its displayed
/// form has no line breaks and no control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AnyPath(pub(crate) PathBuf);

/// The form in JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl Serialize for AnyPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => serializer.collect_seq(self.0.as_os_str().as_bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for AnyPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnyPath, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Text(text) => AnyPath(text.into()),
            Written::Bytes(bytes) => bytes.into(),
        })
    }
}

impl From<Vec<u8>> for AnyPath {
    fn from(bytes: Vec<u8>) -> AnyPath {
        AnyPath(OsString::from_vec(bytes).into())
    }
}

impl From<&Path> for AnyPath {
    fn from(path: &Path) -> AnyPath {
        AnyPath(path.to_owned())
    }
}

impl Deref for AnyPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for AnyPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&in_line(self.0.as_os_str().as_bytes()))
    }
}

/// A name in which control characters and bytes that are not UTF-8 are replaced by their codes.
pub(crate) fn in_line(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() {
                true => shown.extend(character.escape_default()),
                false => shown.push(character),
            }
        }
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// File names could imitate lines of the output, and control characters reached terminals.
    #[test]
    fn a_name_cannot_be_mistaken_for_a_line() {
        assert_eq!(in_line("a b\u{fc}/c".as_bytes()), "a b\u{fc}/c");
        assert_eq!(in_line(b"x\nvolume: clean\x1b[2J"), "x\\nvolume: clean\\u{1b}[2J");
        assert_eq!(in_line(b"\xffa\xc3"), "\\xffa\\xc3");
    }

    #[test]
    fn a_path_is_encoded_in_json_without_loss() {
        for (bytes, written) in
            [(&b"/a\n\"b\""[..], r#""/a\n\"b\"""#), (b"/\xff/x", "[47,255,47,120]"), (b"", r#""""#)]
        {
            let path = AnyPath::from(bytes.to_vec());
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(json, written);
            assert_eq!(serde_json::from_str::<AnyPath>(&json).unwrap(), path);
        }
    }
}
