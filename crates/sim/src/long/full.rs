//! The full volume: a file of exactly the available size fits, and one more block does not. Overwriting and deleting
//! still succeed, and deleted space becomes available again. The same for small files with inline data, which take
//! the space that a large file left.

use rt::random::Rng;

use super::bytes::{GRANULE, made};
use super::over::{Way, Written};
use super::{Place, Refused};
use crate::caught::Wrong;

/// A file without data.
const MORE: u32 = 0;
/// The first number of the files that take the available space.
const FIRST: u32 = 1;
/// The first number of small files.
const FIRST_SMALL: u32 = 100;
/// Bytes of a file with inline data.
const SMALL: u64 = 1000;

/// How much may fit when no space is available, where the count need not be exact: sixty-four pages of metadata.
const UNOFFERED_BYTES: u64 = 4 << 20;

/// The results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filled {
    /// Bytes available on the empty volume.
    pub offered: u64,
    /// Bytes overwritten while the volume was full.
    pub overwritten: u64,
    /// Bytes written in total.
    pub written: u64,
    /// Bytes that were available after all available space had been written, and were written as well.
    pub rest: u64,
    /// Bytes compared.
    pub compared: u64,
    /// Files created and deleted while there was no space for data.
    pub files: u64,
    /// Files of less than a block, created until there was no space.
    pub small: u64,
}

/// Fills the volume twice. Each time it is overwritten.
pub fn fill(place: &mut impl Place, way: &Way, seed: u64) -> Result<Filled, Wrong> {
    let mut rng = Rng::with_seed(seed);
    let mut filled = Filled { offered: offered(place)?, ..Filled::default() };
    for round in 0..2 {
        fill_once(place, way, &mut rng, &mut filled)
            .map_err(|wrong| Wrong(format!("round {round}, {wrong}")))?;
    }
    Ok(filled)
}

fn fill_once(place: &mut impl Place, way: &Way, rng: &mut Rng, filled: &mut Filled) -> Result<(), Wrong> {
    let mut small = Small::make(place, way.names)?;
    filled.small += small.files.len() as u64;
    let before = offered(place)?;
    create_all(place, way.files, filled)?;
    // With many names, each further name may need a node, which takes available space.
    let size = if way.names == 0 { before } else { offered(place)? } / way.block_size * way.block_size;
    let mut files = shared_out(size, way);
    fill_all(place, way, &mut files, rng)
        .map_err(|wrong| Wrong(format!("filling the {size} available bytes: {wrong}")))?;
    take_rest(place, way, &mut files, filled)?;
    refuses(place, &files, way)?;
    for file in &mut files {
        file.write_over(place, way, rng).map_err(|wrong| Wrong(format!("writing over: {wrong}")))?;
        filled.overwritten += file.size();
    }
    if way.is_replaced {
        for file in &mut files {
            file.replace(place, way, rng).map_err(|wrong| Wrong(format!("replacing: {wrong}")))?;
        }
    }
    filled.overwritten += small.write_over(place)?;
    compare(place, &files, filled)?;
    filled.compared += small.compare(place)?;
    // After a mount or GC, less may be reserved for metadata.
    take_rest(place, way, &mut files, filled)?;
    refuses(place, &files, way)?;
    small.remove(place, rng)?;
    for file in files {
        place.remove(file.file()).map_err(|error| error.wrong("deleting a file"))?;
        filled.written += file.bytes;
    }
    place.remove(MORE).map_err(|error| error.wrong("deleting the small file"))?;
    regains(place, filled.offered)
}

/// The reserve for metadata may turn out to be too large. The last file takes the space that becomes available then,
/// until there is none.
fn take_rest(
    place: &mut impl Place,
    way: &Way,
    files: &mut [Written],
    filled: &mut Filled,
) -> Result<(), Wrong> {
    let last = files.last_mut().expect("there is at least one file");
    if way.is_exact {
        return Ok(());
    }
    let mut unoffered = 0;
    loop {
        let offered = place.regain(0).map_err(|error| error.wrong("querying the available space"))?;
        let rest = offered / way.block_size * way.block_size;
        if rest == 0 {
            // The available space leaves out what a write may need for names, but a writer can use it.
            if !last.grows(place, way)? {
                return Ok(());
            }
            unoffered += way.block_size;
            filled.rest += way.block_size;
            if unoffered > UNOFFERED_BYTES {
                return Err(Wrong(format!("no space is available, but {unoffered} more bytes fit")));
            }
            continue;
        }
        filled.rest += rest;
        last.grow(place, way, rest).map_err(|wrong| Wrong(format!("of the {rest} bytes left: {wrong}")))?;
    }
}

/// Files that have this many bytes together, as equal as blocks allow.
fn shared_out(size: u64, way: &Way) -> Vec<Written> {
    let (blocks, files) = (size / way.block_size, u64::from(way.files));
    let share = |index| blocks / files + u64::from(index < blocks % files);
    (0..files).map(|index| Written::new(FIRST + index as u32, share(index) * way.block_size, way)).collect()
}

/// Checks that this many bytes are available again.
fn regains(place: &mut impl Place, before: u64) -> Result<(), Wrong> {
    let after = place.regain(before).map_err(|error| error.wrong("after deleting"))?;
    if after < before {
        return Err(Wrong(format!("{after} bytes are available after deleting, {before} when empty")));
    }
    Ok(())
}

/// A large file takes some eighths of the available space, and small files the rest. Then everything is overwritten,
/// and deleted in another order.
pub fn fill_small(place: &mut impl Place, block_size: u64, eighths: u64, seed: u64) -> Result<Filled, Wrong> {
    let mut rng = Rng::with_seed(seed);
    let empty = offered(place)?;
    let mut filled = Filled { offered: empty, ..Filled::default() };
    let size = empty / 8 * eighths / block_size * block_size;
    let way = Way::usual(block_size, 1);
    let mut large = shared_out(size, &way);
    create_all(place, way.files, &mut filled)?;
    fill_all(place, &way, &mut large, &mut rng)?;
    let mut small = Small::make(place, u32::MAX)?;
    filled.small = small.files.len() as u64;
    if filled.small * SMALL < (empty - size) / 4 {
        return Err(Wrong(format!(
            "{} files of {SMALL} bytes is little for {empty} - {size} bytes",
            filled.small
        )));
    }
    large.iter_mut().try_for_each(|file| file.write_over(place, &way, &mut rng))?;
    compare(place, &large, &mut filled)?;
    filled.overwritten += small.write_over(place)?;
    filled.compared += small.compare(place)?;
    small.remove(place, &mut rng)?;
    for file in [FIRST, MORE] {
        place.remove(file).map_err(|error| error.wrong(format!("deleting file {file}")))?;
    }
    regains(place, empty)?;
    Ok(filled)
}

/// Files with inline data, some of which are overwritten.
struct Small {
    files: Vec<u32>,
    is_written_over: bool,
}

impl Small {
    /// One of this many is overwritten.
    const WRITTEN_OVER: u32 = 7;

    /// Creates files until there is no space, but at most this many.
    fn make(place: &mut impl Place, most: u32) -> Result<Small, Wrong> {
        let files = (FIRST_SMALL..FIRST_SMALL.saturating_add(most))
            .map_while(|file| make_small(place, file).transpose())
            .collect::<Result<_, _>>()?;
        Ok(Small { files, is_written_over: false })
    }

    /// Overwrites some files. Returns the number of bytes.
    fn write_over(&mut self, place: &mut impl Place) -> Result<u64, Wrong> {
        self.is_written_over = true;
        let mut bytes = 0;
        for &file in self.files.iter().filter(|file| Self::is_one(**file)) {
            let again =
                place.write(file, 0, &made(file, 0, SMALL as usize, 1)).and_then(|()| place.fsync(file));
            again.map_err(|error| error.wrong("writing over a small file"))?;
            bytes += SMALL;
        }
        Ok(bytes)
    }

    fn is_one(file: u32) -> bool {
        file.is_multiple_of(Self::WRITTEN_OVER)
    }

    /// Reads and compares all files. Returns the number of bytes.
    fn compare(&self, place: &mut impl Place) -> Result<u64, Wrong> {
        for &file in &self.files {
            let write = u64::from(self.is_written_over && Self::is_one(file));
            let mut found = vec![0; SMALL as usize];
            let read =
                place.read(file, 0, &mut found).map_err(|error| error.wrong("reading a small file"))?;
            if read != (SMALL, SMALL as usize) || found != made(file, 0, SMALL as usize, write) {
                return Err(Wrong(format!("small file {file} differs from write {write}")));
            }
        }
        Ok(self.files.len() as u64 * SMALL)
    }

    /// Deletes all files, in random order.
    fn remove(mut self, place: &mut impl Place, rng: &mut Rng) -> Result<(), Wrong> {
        rng.shuffle(&mut self.files);
        let of = self.files.len();
        self.files.into_iter().try_for_each(|file| {
            place.remove(file).map_err(|error| error.wrong(format!("deleting small file {file} of {of}")))
        })
    }
}

/// Creates a small file. `None` if there is no space for it.
fn make_small(place: &mut impl Place, file: u32) -> Result<Option<u32>, Wrong> {
    let made = place
        .create(file)
        .and_then(|()| place.write(file, 0, &made(file, 0, SMALL as usize, 0)))
        .and_then(|()| place.fsync(file));
    match made {
        Ok(()) => Ok(Some(file)),
        Err(Refused::NoSpace) => match place.remove(file) {
            // It was refused either before or after its name was created.
            Ok(()) | Err(Refused::Other(_)) => Ok(None),
            Err(error) => Err(error.wrong("deleting a file that was refused")),
        },
        Err(error) => Err(error.wrong("making a small file")),
    }
}

fn offered(place: &mut impl Place) -> Result<u64, Wrong> {
    place.available().map_err(|error| error.wrong("querying the available space"))
}

/// Creates the files that will take the available space, and one that gets no data.
fn create_all(place: &mut impl Place, files: u32, filled: &mut Filled) -> Result<(), Wrong> {
    for file in std::iter::once(MORE).chain(FIRST..FIRST + files) {
        place.create(file).map_err(|error| error.wrong("creating a file"))?;
        filled.files += 1;
    }
    Ok(())
}

fn fill_all(place: &mut impl Place, way: &Way, files: &mut [Written], rng: &mut Rng) -> Result<(), Wrong> {
    files.iter_mut().try_for_each(|file| file.fill(place, way, rng))
}

/// One more block is refused at the end of the last file. So is another file that is too large for inline data.
fn refuses(place: &mut impl Place, files: &[Written], way: &Way) -> Result<(), Wrong> {
    let last = files.last().expect("there is at least one file");
    for (file, offset, length) in
        [(last.file(), last.size(), way.block_size), (MORE, 0, way.block_size.max(GRANULE))]
    {
        let written = place.write(file, offset, &vec![1; length as usize]).and_then(|()| place.fsync(file));
        match written {
            // A mount's page cache may have counted the block before the file system refused it.
            Err(Refused::NoSpace) => {
                place.truncate(file, offset).map_err(|error| error.wrong("truncating the refused write"))?;
            }
            Err(error) => return Err(error.wrong("writing one block more than was available")),
            Ok(()) => return Err(Wrong(format!("file {file}: one block more than was available fits"))),
        }
    }
    Ok(())
}

fn compare(place: &mut impl Place, files: &[Written], filled: &mut Filled) -> Result<(), Wrong> {
    place.verify().map_err(|error| error.wrong("verifying everything"))?;
    for file in files {
        filled.compared += file.compare(place)?;
    }
    Ok(())
}
