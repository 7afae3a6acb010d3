//! The words after `-o`.

use anyhow::{Result, anyhow, bail};

use crate::bytes;

/// The least cache that a mount can work with.
const CACHE_BYTES_MIN: u64 = 4 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// What `-o` can say. Later words win over earlier ones, as with every mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) read_only: bool,
    pub(crate) allow_other: bool,
    pub(crate) no_set_id: bool,
    pub(crate) no_devices: bool,
    pub(crate) no_execution: bool,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) commit_interval_ns: Option<u64>,
}

/// A word and what it does.
type Word = (&'static str, fn(&mut Words));

/// Words without a value.
const PLAIN: [Word; 13] = [
    ("defaults", |_| {}),
    ("rw", |words| words.read_only = false),
    ("ro", |words| words.read_only = true),
    ("allow_other", |words| words.allow_other = true),
    // Always on.
    ("default_permissions", |_| {}),
    // Always so: times of access are not kept.
    ("noatime", |_| {}),
    ("suid", |words| words.no_set_id = false),
    ("nosuid", |words| words.no_set_id = true),
    ("dev", |words| words.no_devices = false),
    ("nodev", |words| words.no_devices = true),
    ("exec", |words| words.no_execution = false),
    ("noexec", |words| words.no_execution = true),
    ("async", |_| {}),
];

impl Words {
    /// Reads all `-o` lists in turn.
    pub(crate) fn parse(lists: &[String]) -> Result<Words> {
        let mut words = Words::default();
        for word in lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty()) {
            words.take(word)?;
        }
        Ok(words)
    }

    fn take(&mut self, word: &str) -> Result<()> {
        if let Some((_, apply)) = PLAIN.iter().find(|(name, _)| *name == word) {
            apply(self);
            return Ok(());
        }
        match word.split_once('=') {
            Some(("cache", value)) => self.cache_bytes = Some(cache_bytes(value)?),
            Some(("commit", value)) => self.commit_interval_ns = Some(commit_interval(value)?),
            _ => bail!("unknown mount option '{word}'; known are {}, cache=SIZE, commit=SECONDS", known()),
        }
        Ok(())
    }
}

/// The cache for metadata, not less than works.
pub(crate) fn cache_bytes(text: &str) -> Result<u64> {
    let bytes = bytes::parse(text).map_err(|why| anyhow!("cache: {why}"))?;
    if bytes < CACHE_BYTES_MIN {
        bail!("cache: {text} is too little; give at least {}", bytes::show(CACHE_BYTES_MIN));
    }
    Ok(bytes)
}

fn commit_interval(text: &str) -> Result<u64> {
    let seconds: u64 = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds)).ok_or_else(|| {
        anyhow!("commit={text}: write a whole number of seconds from 1 to 3600, like commit=5")
    })?;
    Ok(seconds * SECOND_NS)
}

fn known() -> String {
    PLAIN.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<Words> {
        Words::parse(&[list.to_owned()])
    }

    #[test]
    fn every_word_is_understood() {
        let words =
            parse("ro,nosuid,nodev,noexec,allow_other,default_permissions,cache=128M,commit=30").unwrap();
        assert_eq!(
            words,
            Words {
                read_only: true,
                allow_other: true,
                no_set_id: true,
                no_devices: true,
                no_execution: true,
                cache_bytes: Some(128 << 20),
                commit_interval_ns: Some(30_000_000_000),
            }
        );
        assert_eq!(parse("").unwrap(), Words::default());
        assert_eq!(parse("defaults,noatime,async,rw").unwrap(), Words::default());
    }

    #[test]
    fn the_last_word_wins() {
        assert!(!parse("ro,rw").unwrap().read_only);
        assert!(Words::parse(&["rw,nosuid".into(), "ro,suid".into()]).unwrap().read_only);
        assert!(!Words::parse(&["rw,nosuid".into(), "ro,suid".into()]).unwrap().no_set_id);
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        for word in ["nobarrier", "commit", "cache", "ro=1", "Cache=1G"] {
            let error = parse(word).unwrap_err().to_string();
            assert!(error.starts_with(&format!("unknown mount option '{word}'")), "{error}");
        }
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for word in ["commit=0", "commit=", "commit=1.5", "commit=99999", "cache=1K", "cache=lots", "cache="]
        {
            let error = parse(word).unwrap_err().to_string();
            assert!(!error.contains('\n') && !error.starts_with("unknown"), "{word}: {error}");
        }
    }
}
