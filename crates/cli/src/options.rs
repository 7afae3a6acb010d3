//! Mount options, the words after `-o`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use polder::device::{CACHE_BYTES_MIN, COMMIT_INTERVAL_NS};

use crate::bytes;
use crate::misuse::{Misuse, did_you_mean};

const SECOND_NS: u64 = 1_000_000_000;
const MEBIBYTE: u64 = 1 << 20;

/// The options of a mount. As in other file systems, later words override earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) read_only: bool,
    pub(crate) allow_other: bool,
    pub(crate) no_set_id: bool,
    pub(crate) no_devices: bool,
    pub(crate) no_execution: bool,
    pub(crate) strict_access_times: bool,
    /// Files have no extended attributes.
    pub(crate) no_xattrs: bool,
    /// Do not use learned lifetimes for placement.
    pub(crate) no_learning: bool,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) commit_interval_ns: Option<u64>,
    /// The address of the status page.
    pub(crate) status: Option<SocketAddr>,
    /// Other machines may be able to reach it.
    pub(crate) is_status_remote: bool,
    /// Change an existing mount.
    pub(crate) remount: bool,
    /// Members of a volume on several devices may be missing.
    pub(crate) degraded: bool,
    /// The ownership of another process is ended that may be alive. It is of the moment of mounting, so it is not among
    /// the options in force.
    pub(crate) takes_over: bool,
    /// Further members of a volume on several devices.
    pub(crate) devices: Vec<PathBuf>,
}

/// A word and its effect.
type Word = (&'static str, fn(&mut Words));

/// Words without a value.
const PLAIN: [Word; 39] = [
    ("defaults", |_| {}),
    ("rw", |words| words.read_only = false),
    ("ro", |words| words.read_only = true),
    ("remount", |words| words.remount = true),
    ("allow_other", |words| words.allow_other = true),
    // Always on.
    ("default_permissions", |_| {}),
    ("noatime", |words| words.strict_access_times = false),
    ("strictatime", |words| words.strict_access_times = true),
    // Generic options of `mount` that are always in force here.
    ("nodiratime", |_| {}),
    ("lazytime", |_| {}),
    ("nolazytime", |_| {}),
    ("norelatime", |_| {}),
    ("iversion", |_| {}),
    ("noiversion", |_| {}),
    ("symfollow", |_| {}),
    ("nomand", |_| {}),
    ("silent", |_| {}),
    ("loud", |_| {}),
    // Options of other file systems that are always in force here.
    ("acl", |_| {}),
    ("user_xattr", |_| {}),
    ("discard", |_| {}),
    ("barrier", |_| {}),
    ("noquota", |_| {}),
    ("errors=remount-ro", |_| {}),
    ("nostrictatime", |words| words.strict_access_times = false),
    ("suid", |words| words.no_set_id = false),
    ("nosuid", |words| words.no_set_id = true),
    ("dev", |words| words.no_devices = false),
    ("nodev", |words| words.no_devices = true),
    ("exec", |words| words.no_execution = false),
    ("noexec", |words| words.no_execution = true),
    ("async", |_| {}),
    ("learn", |words| words.no_learning = false),
    ("nolearn", |words| words.no_learning = true),
    ("xattr", |words| words.no_xattrs = false),
    ("noxattr", |words| words.no_xattrs = true),
    ("status_remote", |words| words.is_status_remote = true),
    ("degraded", |words| words.degraded = true),
    ("takeover", |words| words.takes_over = true),
];

/// Options of other file systems that are not supported here, and the reasons in the error messages. To ignore them would
/// be wrong, because they request a different behaviour.
const UNSUPPORTED: [(&str, &str); 22] = [
    ("relatime", "reading sets the access time always (strictatime) or never (noatime)"),
    ("atime", "reading sets the access time always (strictatime) or never (noatime)"),
    ("diratime", "strictatime and noatime apply to directories and files alike"),
    ("sync", "programs request it (fsync, O_SYNC)"),
    ("dirsync", "programs request it (fsync of the directory)"),
    ("nosymfollow", "symbolic links are always followed"),
    ("mand", "the kernel has no mandatory locks"),
    ("noacl", "access control lists are always in force, except with noxattr"),
    ("nouser_xattr", "extended attributes of users can always be set, except with noxattr"),
    ("nodiscard", "reset zones are always discarded, except on volumes made with `mkfs --preallocate`"),
    ("nobarrier", "fsync always flushes the device"),
    ("quota", "there are no quotas"),
    ("usrquota", "there are no quotas"),
    ("grpquota", "there are no quotas"),
    ("prjquota", "there are no quotas"),
    ("errors=continue", "after a device error nothing more is written (errors=remount-ro)"),
    ("errors=panic", "after a device error nothing more is written (errors=remount-ro)"),
    ("subvol", "a volume has one tree; mount it, and bind-mount a directory of it"),
    ("context", "a mount has no security label of its own; files have theirs (security.selinux)"),
    ("fscontext", "a mount has no security label of its own; files have theirs (security.selinux)"),
    ("defcontext", "a mount has no security label of its own; files have theirs (security.selinux)"),
    ("rootcontext", "a mount has no security label of its own; files have theirs (security.selinux)"),
];

/// Supported options with a value.
const VALUED_HERE: [&str; 4] = ["cache", "commit", "device", "status"];

/// Those of the unsupported options that have a value.
const VALUED: [&str; 5] = ["subvol", "context", "fscontext", "defcontext", "rootcontext"];

/// Options that programs put into `/etc/fstab` or read from it. `mount` passes them on, and they are ignored here.
const IGNORED: [&str; 12] = [
    "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "nousers", "owner", "noowner", "group",
    "nogroup",
];
/// Prefixes of further ignored options. `mount` replaces `user` in a line of `/etc/fstab` by `user=NAME`, so that the user
/// that mounted may unmount. `helper=` and `uhelper=` record the helper to unmount with.
const IGNORED_PREFIXES: [&str; 6] = ["x-", "X-", "comment=", "user=", "helper=", "uhelper="];
/// Prefixes of options that the kernel shows for a mount. `mount` repeats them in a remount.
const KERNEL_PREFIXES: [&str; 6] = ["user_id=", "group_id=", "max_read=", "blksize=", "rootmode=", "fd="];

impl Words {
    /// Parses all `-o` lists in order.
    pub(crate) fn parse(lists: &[String]) -> Result<Words> {
        Words::default().changed_by(lists)
    }

    /// These options with changes.
    pub(crate) fn changed_by(&self, lists: &[String]) -> Result<Words> {
        let mut words = self.clone();
        let list = || lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty());
        words.remount = list().any(|word| word == "remount");
        list().try_for_each(|word| words.take(word)).map_err(Misuse::error)?;
        Ok(words)
    }

    /// The options in force, in the form for `-o`. `cache_bytes` is the size of the daemon's cache.
    pub(crate) fn in_force(&self, cache_bytes: u64) -> String {
        let mut words = vec![if self.read_only { "ro" } else { "rw" }.to_owned()];
        let given = [
            (self.allow_other, "allow_other"),
            (self.no_set_id, "nosuid"),
            (self.no_devices, "nodev"),
            (self.no_execution, "noexec"),
            (self.no_xattrs, "noxattr"),
        ];
        words.extend(given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, word)| word.to_owned()));
        words.push(if self.strict_access_times { "strictatime" } else { "noatime" }.to_owned());
        words.push(if self.no_learning { "nolearn" } else { "learn" }.to_owned());
        words.push(match cache_bytes.is_multiple_of(MEBIBYTE) {
            true => format!("cache={}M", cache_bytes / MEBIBYTE),
            false => format!("cache={cache_bytes}"),
        });
        words.push(format!("commit={}", self.commit_seconds()));
        words.extend(self.status.map(|address| format!("status={address}")));
        words.extend(self.is_status_remote.then(|| "status_remote".to_owned()));
        words.extend(self.degraded.then(|| "degraded".to_owned()));
        words.extend(self.devices.iter().map(|path| format!("device={}", path.display())));
        words.join(",")
    }

    pub(crate) fn commit_seconds(&self) -> u64 {
        self.commit_interval_ns.unwrap_or(COMMIT_INTERVAL_NS) / SECOND_NS
    }

    /// A remount names the devices again.
    fn add_device(&mut self, path: PathBuf) {
        if !self.devices.contains(&path) {
            self.devices.push(path);
        }
    }

    fn take(&mut self, word: &str) -> Result<()> {
        if let Some((_, apply)) = PLAIN.iter().find(|(name, _)| *name == word) {
            apply(self);
            return Ok(());
        }
        if is_ignored(word) || self.remount && starts_with_any(word, &KERNEL_PREFIXES) {
            return Ok(());
        }
        match word.split_once('=') {
            Some(("cache", value)) => self.cache_bytes = Some(cache_bytes(value)?),
            Some(("status", value)) => {
                self.status = Some(status_address(value).map_err(|why| anyhow!("status: {why}"))?)
            }
            Some(("device", "")) => {
                bail!("device=: write the path of a member of the volume, like device=/dev/sdb")
            }
            Some(("device", path)) => self.add_device(path.into()),
            Some(("commit", value)) => self.commit_interval_ns = Some(commit_interval(value)?),
            _ => match refused(word) {
                Some(instead) => bail!("the mount option '{word}' is not supported: {instead}"),
                None => bail!("unknown mount option '{word}'{}", meant(word).unwrap_or_else(known)),
            },
        }
        Ok(())
    }
}

/// The lists without the options that [`Words::parse`] would refuse (`mount -s`).
pub(crate) fn without_unknown(lists: &[String]) -> Vec<String> {
    let known = |word: &&str| {
        let name = word.split_once('=').map_or(*word, |(name, _)| name);
        PLAIN.iter().any(|(plain, _)| plain == word) || is_ignored(word) || VALUED_HERE.contains(&name)
    };
    let list = lists.iter().flat_map(|list| list.split(','));
    list.filter(known).map(str::to_owned).collect()
}

/// Parses the address of the status page.
pub(crate) fn status_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is not an address with a port; write one, like 127.0.0.1:9180"))
}

/// Parses the size of the cache for metadata.
pub(crate) fn cache_bytes(text: &str) -> Result<u64> {
    let bytes = bytes::parse(text).map_err(|why| anyhow!("cache: {why}"))?;
    if bytes < CACHE_BYTES_MIN {
        bail!("cache: {text} is too small; use at least {}", bytes::show(CACHE_BYTES_MIN));
    }
    Ok(bytes)
}

fn is_ignored(word: &str) -> bool {
    IGNORED.contains(&word) || starts_with_any(word, &IGNORED_PREFIXES)
}

fn starts_with_any(word: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| word.starts_with(beginning))
}

fn commit_interval(text: &str) -> Result<u64> {
    let seconds: u64 = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds)).ok_or_else(|| {
        anyhow!("commit={text}: write a whole number of seconds from 1 to 3600, like commit=5")
    })?;
    Ok(seconds * SECOND_NS)
}

/// The reason why an option of other file systems is refused, for any value.
fn refused(word: &str) -> Option<&'static str> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let is_meant = |(known, _): &&(&str, &str)| {
        *known == word || word.contains('=') && VALUED.contains(known) && *known == name
    };
    UNSUPPORTED.iter().find(is_meant).map(|(_, instead)| *instead)
}

/// A suggestion for a mistyped option.
fn meant(word: &str) -> Option<String> {
    let meant = match word.split_once('=') {
        Some((name, _)) => did_you_mean(name, VALUED_HERE.into_iter()),
        None => did_you_mean(word, PLAIN.iter().map(|(name, _)| *name).chain(IGNORED)),
    };
    Some(meant).filter(|meant| !meant.is_empty())
}

fn known() -> String {
    let names: Vec<&str> = PLAIN.iter().map(|(name, _)| *name).collect();
    format!(
        "; known are {}, cache=SIZE, commit=SECONDS, device=PATH, status=ADDRESS:PORT, and those in /etc/fstab that other programs read",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<Words> {
        Words::parse(&[list.to_owned()])
    }

    /// A volume that `user` in fstab permits users to mount was refused because of an unknown option.
    #[test]
    fn every_word_is_understood() {
        let list = "ro,nosuid,nodev,noexec,strictatime,noxattr,nolearn,allow_other,cache=128M,commit=30,status=127.0.0.1:9180,status_remote,degraded,takeover,device=/a,device=/b,device=/a";
        let words = parse(list).unwrap();
        assert_eq!(
            words,
            Words {
                read_only: true,
                allow_other: true,
                no_set_id: true,
                no_devices: true,
                no_execution: true,
                strict_access_times: true,
                no_xattrs: true,
                no_learning: true,
                cache_bytes: Some(128 << 20),
                commit_interval_ns: Some(30_000_000_000),
                status: Some("127.0.0.1:9180".parse().unwrap()),
                is_status_remote: true,
                remount: false,
                degraded: true,
                takes_over: true,
                devices: vec!["/a".into(), "/b".into()],
            }
        );
        assert_eq!(parse("").unwrap(), Words::default());
        assert_eq!(parse("defaults,noatime,async,rw").unwrap(), Words::default());
        let fstab = "defaults,nofail,noauto,_netdev,x-systemd.automount,x-systemd.device-timeout=5,comment=x";
        assert_eq!(parse(fstab).unwrap(), Words::default());
        // The form in which `mount` passes `user` of `/etc/fstab`, and the helpers that it records.
        let by_user = "rw,noexec,nosuid,nodev,user=ann,helper=polder,uhelper=udisks2";
        assert_eq!(parse(by_user).unwrap(), parse("rw,noexec,nosuid,nodev").unwrap());
        let kept = ["rw,user=ann,nobarrier,context=x,bogus".to_owned()];
        assert_eq!(without_unknown(&kept), ["rw", "user=ann"]);
    }

    #[test]
    fn options_in_force_can_be_parsed_again() {
        assert_eq!(Words::default().in_force(128 << 20), "rw,noatime,learn,cache=128M,commit=5");
        let list = "ro,allow_other,nosuid,nodev,noexec,noxattr,strictatime,nolearn,cache=5000000,commit=30,status=[::1]:9180,degraded,device=/a";
        let words = parse(list).unwrap();
        assert_eq!(words.in_force(5_000_000), list);
        assert_eq!(parse(&words.in_force(5_000_000)).unwrap(), words);
    }

    #[test]
    fn the_last_word_wins() {
        assert!(!parse("ro,rw").unwrap().read_only);
        assert!(Words::parse(&["rw,nosuid".into(), "ro,suid".into()]).unwrap().read_only);
        assert!(!Words::parse(&["rw,nosuid".into(), "ro,suid".into()]).unwrap().no_set_id);
    }

    #[test]
    fn a_remount_changes_what_it_names() {
        let before = parse("nosuid,commit=7,cache=16M").unwrap();
        let after = before.changed_by(&["remount,ro,user_id=0,group_id=0,max_read=1048576".into()]).unwrap();
        assert_eq!(after, Words { read_only: true, remount: true, ..before });
        assert!(!after.changed_by(&["rw".into()]).unwrap().remount);
        assert!(parse("user_id=0").is_err(), "only accepted in a remount");
    }

    /// A line of `/etc/fstab` that was written for ext4 or XFS could not be mounted.
    #[test]
    fn options_without_effect_are_accepted() {
        for word in [
            "discard",
            "acl",
            "user_xattr",
            "norelatime",
            "iversion",
            "noiversion",
            "lazytime",
            "nolazytime",
            "silent",
            "loud",
            "symfollow",
            "nomand",
            "barrier",
            "noquota",
            "errors=remount-ro",
            "auto",
            "noauto",
            "user",
            "nouser",
            "users",
            "nousers",
            "owner",
            "noowner",
            "group",
            "nogroup",
            "_netdev",
            "nofail",
            "x-systemd.automount",
            "X-mount.mkdir",
            "comment=mine",
            "defaults",
            "async",
            "user=ann",
            "helper=polder",
            "uhelper=udisks2",
        ] {
            assert_eq!(parse(word).unwrap(), Words::default(), "{word}");
            assert_eq!(without_unknown(&[word.to_owned()]), [word]);
        }
    }

    #[test]
    fn unsupported_options_are_refused_with_the_reason() {
        let words = UNSUPPORTED.iter().map(|(name, _)| (*name).to_owned());
        for word in words.chain(["context=system_u:object_r:x", "subvol=/@"].map(str::to_owned)) {
            let error = parse(&word).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the mount option '{word}' is not supported: ")), "{error}");
            assert!(!PLAIN.iter().any(|(name, _)| *name == word), "{word}");
        }
    }

    /// The manual has one table of all words.
    #[test]
    fn the_manual_names_every_word() {
        let manual = include_str!("../../../docs/manual.md");
        let table: Vec<&str> = manual
            .lines()
            .skip_while(|line| *line != "| word | means |")
            .take_while(|line| line.starts_with('|'))
            .collect();
        let words = PLAIN
            .iter()
            .map(|(name, _)| *name)
            .chain(UNSUPPORTED.iter().map(|(name, _)| *name))
            .chain(IGNORED);
        for word in words {
            let (bare, valued) = (format!("`{word}`"), format!("`{word}="));
            assert!(table.iter().any(|line| line.contains(&bare) || line.contains(&valued)), "{word}");
        }
    }

    #[test]
    fn unknown_words_are_refused_by_name() {
        for word in
            ["bogus", "data=journal", "commit", "cache", "ro=1", "Cache=1G", "errors=what", "x", "user_id=0"]
        {
            let error = parse(word).unwrap_err();
            assert!(error.to_string().starts_with(&format!("unknown mount option '{word}'")), "{error}");
            assert!(error.is::<Misuse>());
        }
        for (word, meant) in
            [("strictatme", "strictatime"), ("nosiud", "nosuid"), ("comit=5", "commit"), ("nofial", "nofail")]
        {
            let error = parse(word).unwrap_err().to_string();
            assert!(error.contains(&format!("'{word}'; did you mean '{meant}'?")), "{error}");
        }
        assert!(parse("relatime").unwrap_err().to_string().contains("strictatime"));
        let list = ["ro,nobarrier".to_owned(), "commit=3,x-a=b,data=journal".to_owned()];
        assert_eq!(without_unknown(&list), ["ro", "commit=3", "x-a=b"]);
    }

    #[test]
    fn invalid_values_are_refused() {
        for word in [
            "commit=0",
            "commit=",
            "commit=1.5",
            "commit=99999",
            "cache=1K",
            "cache=lots",
            "cache=",
            "status=",
            "status=9180",
            "device=",
        ] {
            let error = parse(word).unwrap_err().to_string();
            assert!(!error.contains('\n') && !error.starts_with("unknown"), "{word}: {error}");
        }
    }
}
