//! Volumes named by a tag as in `/etc/fstab`: `LABEL=`, `UUID=`, `PARTLABEL=`, `PARTUUID=`, `ID=`.
//!
//! A tag is resolved by a link in `/dev/disk`. udev creates the links for labels and UUIDs of partitions. It creates those of
//! volumes if the rule of Polder is installed (`contrib/udev`), which calls `polder probe`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The directory of the links.
const LINKS: &str = "/dev/disk";
const TAGS: [(&str, &str); 5] = [
    ("LABEL", "by-label"),
    ("UUID", "by-uuid"),
    ("PARTLABEL", "by-partlabel"),
    ("PARTUUID", "by-partuuid"),
    ("ID", "by-id"),
];

/// Characters that need no encoding in the names of links.
const AS_IT_IS: &str = "#+-.:=@_";

/// The link for a tag. Nothing if the name is a path.
pub(crate) fn link(named: &Path) -> Result<Option<PathBuf>> {
    link_in(Path::new(LINKS), named)
}

/// Whether a name is a tag. A file with such a name must be named with its directory, like `./LABEL=x`.
pub(crate) fn is_tag(named: &Path) -> bool {
    parsed(named).is_some()
}

/// The directory of the links of this tag, and the value.
fn parsed(named: &Path) -> Option<(&'static str, &str)> {
    let (tag, value) = named.to_str()?.split_once('=')?;
    let (_, directory) = TAGS.iter().find(|(name, _)| *name == tag)?;
    Some((directory, value))
}

fn link_in(links: &Path, named: &Path) -> Result<Option<PathBuf>> {
    let Some((directory, value)) = parsed(named) else { return Ok(None) };
    let value = value.trim_matches('"');
    let directory = links.join(directory);
    let candidates = [value.to_owned(), value.to_lowercase()].map(|value| directory.join(encoded(&value)));
    if let Some(found) = candidates.into_iter().find(|link| link.is_symlink() && link.exists()) {
        return Ok(Some(found));
    }
    bail!(
        "{}: {} has no such link; udev creates links for the labels and UUIDs of Polder volumes if its rule for Polder is \
         installed, so install it or name the path (`polder list` shows the volumes on block devices)",
        named.display(),
        directory.display()
    )
}

/// Text for the name of a link. Characters that are not plain are encoded by their codes.
pub(crate) fn encoded(text: &str) -> String {
    let one = |character: char| match is_plain(character) {
        true => character.to_string(),
        false => format!("\\x{:02x}", u32::from(character)),
    };
    text.chars().map(one).collect()
}

pub(crate) fn is_plain(character: char) -> bool {
    !character.is_ascii() || character.is_ascii_alphanumeric() || AS_IT_IS.contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_lead_to_the_targets_of_their_links() {
        let place = tempfile::tempdir().unwrap();
        let device = place.path().join("device");
        std::fs::write(&device, "").unwrap();
        let link = |tag: &str, name: &str| {
            let link = place.path().join(tag).join(name);
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(&device, &link).unwrap();
            link
        };
        let label = link("by-label", "my\\x20data\\x2f1");
        let uuid = link("by-uuid", "00ab-cd");
        let part = link("by-partuuid", "5e");
        let found = |named: &str| link_in(place.path(), Path::new(named));
        for (named, leads_to) in [
            ("LABEL=my data/1", &label),
            ("LABEL=\"my data/1\"", &label),
            ("UUID=00ab-cd", &uuid),
            ("UUID=00AB-CD", &uuid),
            ("PARTUUID=5e", &part),
        ] {
            assert_eq!(found(named).unwrap().as_ref(), Some(leads_to), "{named}");
        }
        for path in ["volume", "a=b", "/srv/LABEL=x", "label=x"] {
            assert_eq!(found(path).unwrap(), None, "{path}");
        }
        for named in ["LABEL=other", "LABEL=", "UUID=..", "UUID=../by-label"] {
            let said = found(named).unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("{named}: "))
                    && said.contains("no such link")
                    && said.contains("name the path"),
                "{said}"
            );
        }
    }
}
