//! `polder probe`: tells other programs, like udev, whether a device has a volume, and which.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use polder::device::{Medium, is_stored};
use zone::file::{FileContents, other_signature};
use zone::medium::missing_path;
use zone::set::MemberLabel;

use crate::complain;
use crate::info::Info;
use crate::output::say;
use crate::tags::{encoded, is_plain};

/// The exit status for something that is no volume, as that of `blkid`.
const NO_VOLUME: u8 = 2;

/// Print what identifies a volume on a device or in a file, in the form that udev imports. The exit status is 2 if there
/// is none.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file, device or URL.
    path: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match lines(arguments) {
        Ok(Some(lines)) => crate::finish(say(lines)),
        Ok(None) => ExitCode::from(NO_VOLUME),
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn lines(arguments: &Arguments) -> Result<Option<String>> {
    let is_url = is_stored(&arguments.path);
    let fs_id = match Medium::probe(&arguments.path)? {
        FileContents::Volume { fs_id, .. } => fs_id,
        FileContents::Member(label) => return Ok(Some(properties_of_member(&label))),
        FileContents::Nothing if is_url => return Ok(None),
        FileContents::Nothing => return Err(missing_path(&arguments.path).into()),
        _ => return Ok(None),
    };
    if !is_url && other_signature(&arguments.path).is_some() {
        return Ok(None);
    }
    // A volume that another machine or a broken daemon holds still has an ID.
    let info = Info::about(&arguments.path).ok();
    let label = info.as_ref().map_or("", |info| info.label.as_str());
    let version = info.as_ref().map(|info| info.format_version.to_string());
    Ok(Some(properties(&fs_id.to_string(), label, version.as_deref())))
}

/// The properties of a member. The label of the volume is not among them: udev asks for one device after the other, when
/// the other members may not be there yet.
fn properties_of_member(member: &MemberLabel) -> String {
    let id = member.id();
    let own = format!("ID_FS_UUID_SUB={id}\nID_FS_UUID_SUB_ENC={id}\n");
    properties(&member.fs_id().to_string(), "", None) + &own
}

/// The properties that udev has for every file system.
fn properties(id: &str, label: &str, version: Option<&str>) -> String {
    let mut lines =
        format!("ID_FS_USAGE=filesystem\nID_FS_TYPE=polder\nID_FS_UUID={id}\nID_FS_UUID_ENC={id}\n");
    if let Some(version) = version {
        lines += &format!("ID_FS_VERSION={version}\n");
    }
    if !label.is_empty() {
        lines += &format!("ID_FS_LABEL={}\nID_FS_LABEL_ENC={}\n", replaced(label), encoded(label));
    }
    lines
}

/// Text without characters that mean something to a shell or to udev.
fn replaced(text: &str) -> String {
    let one = |character: char| if is_plain(character) { character } else { '_' };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_add_properties_or_commands() {
        let lines = properties("12-34", "my $(data)/1\nID_X=y", Some("1"));
        assert_eq!(lines.lines().count(), 7, "{lines}");
        assert!(lines.contains("ID_FS_LABEL=my___data__1_ID_X=y\n"), "{lines}");
        assert!(lines.contains("ID_FS_LABEL_ENC=my\\x20\\x24\\x28data\\x29\\x2f1\\x0aID_X=y\n"), "{lines}");
    }

    #[test]
    fn a_volume_without_a_label_has_no_property_for_it() {
        let lines = properties("12-34", "", None);
        assert_eq!(lines.lines().count(), 4);
        assert!(!lines.contains("LABEL"));
    }
}
