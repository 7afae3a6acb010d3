//! `polder dump`: the stored structures of an unmounted volume.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use extent::{MapRow, Object};
use fs::{Caller, Fs, InodeNo};
use polder::stats::role_name;
use serde_json::{Map, Value, json};
use tree::{BatchContents, BatchView, NodeEntry, Op, Patch};
use zone::{Role, ZoneId};

use crate::misuse::Misuse;
use crate::numbers::whole;
use crate::output;
use crate::unmounted::UnmountedVolume;
use crate::zones::state_name;

/// The largest number of bytes of a key or value in human-readable output.
const SHOWN_BYTES: usize = 48;

/// Show the stored structures of a volume that is not mounted.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL.
    volume: PathBuf,
    /// The kind of structure.
    #[arg(value_enum)]
    structure: Structure,
    /// The number of the zone, of the node, of the inode, or of the inode with the extents. The journal has no number.
    #[arg(allow_negative_numbers = true, value_parser = whole::<u64>)]
    number: Option<u64>,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Structure {
    /// A zone: its entry in the zone table, and its contents.
    Zone,
    /// A node of a metadata tree.
    Node,
    /// All batches of the log, in the order in which they were written.
    Journal,
    /// The record of an inode.
    Inode,
    /// The extents of an inode.
    Extent,
}

impl Arguments {
    /// The number of the object, or 0 for the journal, which has none.
    fn checked_number(&self) -> Result<u64> {
        let (word, owner) = match self.structure {
            Structure::Zone => ("zone", "zone"),
            Structure::Node => ("node", "node"),
            Structure::Inode => ("inode", "inode (`ls -i` shows it)"),
            Structure::Extent => ("extent", "inode with the extents (`ls -i` shows it)"),
            Structure::Journal => match self.number {
                None => return Ok(0),
                Some(_) => return Err(Misuse::error("the journal has no number; omit it")),
            },
        };
        let volume = self.volume.display();
        self.number.ok_or_else(|| {
            Misuse::error(format!(
                "{word}: add the number of the {owner}, like `polder dump {volume} {word} 1`"
            ))
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let number = arguments.checked_number()?;
    let inside = UnmountedVolume::open(&arguments.volume)?;
    let fs = inside.fs();
    let value = match arguments.structure {
        Structure::Journal => journal(fs)?,
        Structure::Zone => zone(fs, number)?,
        Structure::Node => node(fs, number)?,
        Structure::Inode => inode(fs, number)?,
        Structure::Extent => extents(fs, number)?,
    };
    output::say(match arguments.json {
        true => serde_json::to_string_pretty(&value)? + "\n",
        false => text(&value),
    })
}

fn zone(fs: &Fs, number: u64) -> Result<Value> {
    let (store, zones) = (fs.store(), fs.store().pool());
    let found = u32::try_from(number).ok().filter(|&number| number < zones.count());
    let zone = ZoneId(found.ok_or_else(|| {
        anyhow!("zone {number}: there is none; the zones are 0 to {}", zones.count().saturating_sub(1))
    })?);
    let (entry, info) = (zones.entry(zone), store.device().report_zone(zone)?);
    let contents = match entry.role {
        Role::Free => Value::Null,
        Role::Log => store.view_log_zone(zone)?.iter().map(batch).collect(),
        Role::Metadata => store.view_pages(zone)?.iter().map(page).collect(),
        Role::Data | Role::Gc => match fs.extents().reverse_maps().entries_of(fs.extents().store(), zone) {
            Some(entries) => entries.iter().map(reverse_entry).collect(),
            None => json!("no complete reverse map"),
        },
    };
    Ok(json!({
        "zone": zone.0, "role": role_name(entry.role), "life": entry.life.0, "live_blocks": entry.live,
        "state": state_name(info.state), "written_blocks": info.pointer, "capacity_blocks": info.capacity,
        "user": bytes(&entry.user), "contents": contents,
    }))
}

fn page(page: &tree::PageView) -> Value {
    let mut shown = json!({"block": page.block, "kind": page.kind, "id": page.id, "lsn": page.lsn.0, "epoch": page.epoch});
    if let Some((group, level)) = page.place {
        shown["group"] = json!(group.0);
        shown["level"] = json!(level);
    }
    if let Some(is_current) = page.is_current {
        shown["current"] = json!(is_current);
    }
    shown
}

fn reverse_entry(entry: &extent::format::Entry) -> Value {
    json!({
        "block": entry.block, "blocks": entry.blocks(), "inode": entry.object.0, "file_block": entry.offset,
        "sequence": entry.sequence,
    })
}

fn node(fs: &Fs, number: u64) -> Result<Value> {
    let view = fs.store().view_node(number)?;
    let view = view.with_context(|| {
        format!("node {number}: there is none; the roots are 1 to {}", fs.store().info().groups)
    })?;
    let entries: Vec<Value> = view.entries.iter().map(node_entry).collect();
    Ok(json!({
        "node": view.id, "group": view.group.0, "level": view.level, "lsn": view.lsn.0,
        "address": place(view.address), "base_page": place(view.base), "used_bytes": view.used.0, "capacity_bytes": view.used.1,
        "entries": entries,
    }))
}

fn node_entry(entry: &NodeEntry) -> Value {
    match entry {
        NodeEntry::Child(key, node) => json!({"from_key": bytes(key), "node": node}),
        NodeEntry::Row(table, key, value) => {
            json!({"table": table.0, "key": bytes(key), "value": bytes(value), "value_bytes": value.len()})
        }
    }
}

fn journal(fs: &Fs) -> Result<Value> {
    Ok(json!({"batches": fs.store().view_log()?.iter().map(batch).collect::<Vec<_>>()}))
}

fn batch(batch: &BatchView) -> Value {
    let mut shown = json!({
        "address": place(batch.at), "epoch": batch.epoch, "sequence": batch.sequence, "first_lsn": batch.lsns.0,
        "last_lsn": batch.lsns.1, "known_durable": batch.known_durable, "checkpoint": place(batch.checkpoint),
    });
    match &batch.kind {
        BatchContents::Journal(Some(records)) => {
            shown["kind"] = json!(if records.is_empty() { "mark" } else { "journal" });
            let writes = records.iter().flat_map(|(lsn, ops)| ops.iter().map(|op| write(lsn.0, op)));
            shown["writes"] = writes.collect();
        }
        BatchContents::Journal(None) | BatchContents::Damaged => shown["kind"] = json!("damaged"),
        BatchContents::Seal => shown["kind"] = json!("seal"),
        BatchContents::Checkpoint { number, cut, replay_from, next_node, features, counters, prepaid } => {
            shown["kind"] = json!("checkpoint");
            shown["number"] = json!(number);
            shown["cut"] = json!(cut);
            shown["replay_from"] = place(*replay_from);
            shown["next_node"] = json!(next_node);
            shown["features"] = json!(features);
            shown["counters"] = json!(counters);
            shown["prepaid"] = json!(prepaid);
        }
    }
    shown
}

fn write(lsn: u64, op: &Op) -> Value {
    match op {
        Op::Put { group, table, key, value } => json!({
            "lsn": lsn, "write": "put", "group": group.0, "table": table.0, "key": bytes(key), "value": bytes(value),
        }),
        Op::Patch { group, table, key, patch } => json!({
            "lsn": lsn, "write": "patch", "group": group.0, "table": table.0, "key": bytes(key),
            "length": patch.length, "pieces": pieces(patch),
        }),
        Op::Delete { group, table, key } => json!({
            "lsn": lsn, "write": "delete", "group": group.0, "table": table.0, "key": bytes(key),
        }),
        Op::ZoneOpened { zone, life, role } => json!({
            "lsn": lsn, "write": "zone opened", "zone": zone.0, "life": life.0, "role": role_name(*role),
        }),
        Op::ZoneLive { zone, life, change } => json!({
            "lsn": lsn, "write": "zone live", "zone": zone.0, "life": life.0, "change": change,
        }),
        Op::ZoneUser { zone, life, bytes: user } => json!({
            "lsn": lsn, "write": "zone user", "zone": zone.0, "life": life.0, "bytes": bytes(user),
        }),
        Op::Counter { counter, change } => json!({
            "lsn": lsn, "write": "counter", "counter": counter, "change": change,
        }),
    }
}

fn pieces(patch: &Patch) -> Value {
    patch.pieces.iter().map(|(at, piece)| json!({ "offset": at, "bytes": bytes(piece) })).collect()
}

fn inode(fs: &Fs, number: u64) -> Result<Value> {
    let record = fs.view_inode(InodeNo(number))?;
    let record = record.with_context(|| format!("inode {number}: there is none; the root directory is 1"))?;
    let attributes: Vec<String> = match record.xattrs {
        0 => Vec::new(),
        _ => fs
            .list_xattrs(&Caller::root(), InodeNo(number))?
            .iter()
            .map(|name| name.escape_ascii().to_string())
            .collect(),
    };
    Ok(json!({
        "inode": number, "kind": format!("{:?}", record.kind).to_lowercase(),
        "permissions": format!("{:04o}", record.permissions), "flags": record.flags, "links": record.links,
        "uid": record.uid, "gid": record.gid, "device": record.device, "generation": record.generation,
        "size": record.size, "blocks": record.blocks, "parent": record.parent.0, "accessed_ns": record.accessed.0,
        "modified_ns": record.modified.0, "changed_ns": record.changed.0, "born_ns": record.born.0,
        "content": bytes(&record.content), "content_bytes": record.content.len(), "attributes": attributes,
    }))
}

fn extents(fs: &Fs, number: u64) -> Result<Value> {
    // A number without an inode may be a shared object.
    let inode = fs.view_inode(InodeNo(number))?;
    let object = inode.as_ref().map_or(Object(number), |record| record.object(InodeNo(number)));
    let pieces = extent::view_object(fs.extents().maps(), object)?;
    if pieces.is_empty() && inode.is_none() {
        bail!("inode {number}: there is none; the root directory is 1");
    }
    let shown = pieces.iter().map(|(block, piece)| match piece {
        MapRow::Extent(extent) if extent.is_lost() => json!({"file_block": block, "blocks": extent.blocks, "lost": true}),
        MapRow::Extent(extent) if extent.unwritten => {
            json!({"file_block": block, "blocks": extent.blocks, "unwritten": true})
        }
        MapRow::Extent(extent::format::Extent { origin: Some(origin), blocks, .. }) => json!({
            "file_block": block, "blocks": blocks, "object": origin.object.0, "object_block": origin.block,
        }),
        MapRow::Extent(extent) => json!({
            "file_block": block, "blocks": extent.blocks, "address": place(extent.address), "trimmed": extent.trimmed,
            "crc": extent.crcs.iter().map(|crc| format!("{crc:08x}")).collect::<Vec<_>>(),
        }),
        MapRow::Inline(bytes) => json!({"file_block": block, "blocks": 1, "inline_bytes": bytes}),
        MapRow::Damaged => json!({"file_block": block, "damaged": true}),
    });
    Ok(json!({"inode": number, "object": object.0, "extents": shown.collect::<Vec<_>>()}))
}

fn place(address: zone::Address) -> Value {
    if address.is_none() { Value::Null } else { json!(address.to_string()) }
}

/// Bytes in hexadecimal.
fn bytes(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The human-readable form: a line for each field, and a line for each element of a list.
fn text(value: &Value) -> String {
    let Value::Object(fields) = value else { return format!("{}\n", word(value)) };
    let mut text = String::new();
    for (name, value) in fields {
        match value {
            Value::Array(elements) if elements.iter().any(Value::is_object) => {
                text += &format!("{name}: {}\n", elements.len());
                elements.iter().for_each(|element| lines(element, 1, &mut text));
            }
            value => text += &format!("{name:<16}{}\n", word(value)),
        }
    }
    text
}

/// An element of a list: one line, and further lines for lists in the element.
fn lines(element: &Value, depth: usize, text: &mut String) {
    let Value::Object(fields) = element else { return };
    let (lists, plain): (Vec<_>, Vec<_>) = fields
        .iter()
        .partition(|(_, value)| value.as_array().is_some_and(|list| list.iter().any(Value::is_object)));
    let words: Vec<String> = plain.iter().map(|(name, value)| format!("{name}={}", word(value))).collect();
    *text += &format!("{}{}\n", "  ".repeat(depth), words.join(" "));
    for (_, list) in lists {
        list.as_array().into_iter().flatten().for_each(|inner| lines(inner, depth + 1, text));
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => match text.char_indices().nth(2 * SHOWN_BYTES) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.clone(),
        },
        Value::Null => "-".to_owned(),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(","),
        Value::Object(fields) => Map::to_owned(fields).keys().cloned().collect::<Vec<_>>().join(","),
        plain => plain.to_string(),
    }
}
