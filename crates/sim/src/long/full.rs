//! The full volume: a file of exactly what is offered fits, one block more does not, writing over and
//! deleting go on, and what was deleted is offered again. The same where files so small that they lie in
//! metadata have taken what a large one left.

use rt::random::Rng;

use super::bytes::{GRANULE, made};
use super::{Place, Refused};
use crate::caught::Wrong;

/// Bytes written at once.
const PIECE: u64 = 1 << 20;
const ALL: u32 = 0;
const MORE: u32 = 1;
const FIRST_SMALL: u32 = 2;
/// Bytes of a file that lies in its inode.
const SMALL: u64 = 1000;

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filled {
    /// Bytes offered by the empty volume.
    pub offered: u64,
    /// Bytes written over while it was full.
    pub overwritten: u64,
    /// Bytes compared.
    pub compared: u64,
    /// Files made and deleted while there was no space for data.
    pub files: u64,
    /// Files of less than a block made until there was no space.
    pub small: u64,
}

/// Fills it twice; each time it is written over `times` times.
pub fn fill(place: &mut impl Place, block_size: u64, times: u64, seed: u64) -> Result<Filled, Wrong> {
    let mut rng = Rng::with_seed(seed);
    let mut filled = Filled { offered: offered(place)?, ..Filled::default() };
    for round in 0..2 {
        let at = |what: &str| format!("round {round}, {what}");
        let size = offered(place)? / block_size * block_size;
        write_all(place, size, &mut filled).map_err(|wrong| Wrong(at(&wrong.0)))?;
        refuses(place, size, block_size)?;
        let written = overwrite(place, size, times, &mut rng).map_err(|wrong| Wrong(at(&wrong.0)))?;
        compare(place, &written, size, &mut filled)?;
        refuses(place, size, block_size)?;
        place.remove(ALL).map_err(|error| error.wrong(at("deleting the file")))?;
        place.remove(MORE).map_err(|error| error.wrong(at("deleting the small file")))?;
        let after = place.regain(filled.offered).map_err(|error| error.wrong(at("after deleting")))?;
        if after < filled.offered {
            let before = filled.offered;
            return Err(Wrong(at(&format!("{after} bytes are offered after deleting, {before} when empty"))));
        }
        filled.overwritten += written.iter().map(|&write| u64::from(write > 0) * GRANULE).sum::<u64>();
    }
    Ok(filled)
}

/// A large file takes some eighths of what is offered, small ones the rest; then all is written over, and
/// deleted in another order.
pub fn fill_small(place: &mut impl Place, block_size: u64, eighths: u64, seed: u64) -> Result<Filled, Wrong> {
    let mut rng = Rng::with_seed(seed);
    let empty = offered(place)?;
    let mut filled = Filled { offered: empty, ..Filled::default() };
    let size = empty / 8 * eighths / block_size * block_size;
    write_all(place, size, &mut filled)?;
    let mut small: Vec<u32> =
        (FIRST_SMALL..).map_while(|file| make_small(place, file).transpose()).collect::<Result<_, _>>()?;
    filled.small = small.len() as u64;
    if filled.small * SMALL < (empty - size) / 4 {
        return Err(Wrong(format!(
            "{} files of {SMALL} bytes is little for {empty} - {size} bytes",
            filled.small
        )));
    }
    rng.shuffle(&mut small);
    let written = overwrite(place, size, 1, &mut rng)?;
    compare(place, &written, size, &mut filled)?;
    for &file in small.iter().step_by(7) {
        let again = place.write(file, 0, &made(file, 0, SMALL as usize, 1)).and_then(|()| place.fsync(file));
        again.map_err(|error| error.wrong("writing over a small file"))?;
        filled.overwritten += SMALL;
    }
    for (index, &file) in small.iter().enumerate() {
        let mut found = vec![0; SMALL as usize];
        let read = place.read(file, 0, &mut found).map_err(|error| error.wrong("reading a small file"))?;
        if read != (SMALL, SMALL as usize)
            || found != made(file, 0, SMALL as usize, u64::from(index % 7 == 0))
        {
            return Err(Wrong(format!("small file {file}, written over or not, has other contents")));
        }
        filled.compared += SMALL;
    }
    for &file in small.iter().chain(&[ALL, MORE]) {
        place
            .remove(file)
            .map_err(|error| error.wrong(format!("deleting file {file} of {}", small.len())))?;
    }
    let after = place.regain(empty).map_err(|error| error.wrong("after deleting"))?;
    match after >= empty {
        true => Ok(filled),
        false => {
            Err(Wrong(format!("{after} bytes are offered after deleting small files, {empty} when empty")))
        }
    }
}

/// False when there is no room for another.
fn make_small(place: &mut impl Place, file: u32) -> Result<Option<u32>, Wrong> {
    let made = place
        .create(file)
        .and_then(|()| place.write(file, 0, &made(file, 0, SMALL as usize, 0)))
        .and_then(|()| place.fsync(file));
    match made {
        Ok(()) => Ok(Some(file)),
        Err(Refused::NoSpace) => match place.remove(file) {
            // It was refused before there was a name, or after.
            Ok(()) | Err(Refused::Other(_)) => Ok(None),
            Err(error) => Err(error.wrong("deleting a file that was refused")),
        },
        Err(error) => Err(error.wrong("making a small file")),
    }
}

fn offered(place: &mut impl Place) -> Result<u64, Wrong> {
    place.available().map_err(|error| error.wrong("asking what is offered"))
}

/// A file of exactly that size, and beside it one without data.
fn write_all(place: &mut impl Place, size: u64, filled: &mut Filled) -> Result<(), Wrong> {
    place.create(MORE).map_err(|error| error.wrong("creating a file"))?;
    place.create(ALL).map_err(|error| error.wrong("creating a file"))?;
    let mut offset = 0;
    while offset < size {
        let length = PIECE.min(size - offset);
        let piece = made(ALL, offset, length as usize, 0);
        place
            .write(ALL, offset, &piece)
            .map_err(|error| error.wrong(format!("writing at {offset} of the {size} bytes offered")))?;
        offset += length;
    }
    filled.files += 2;
    place.fsync(ALL).map_err(|error| error.wrong(format!("fsync of the {size} bytes offered")))
}

/// One block more is refused at the end of the file, and so is another file that does not fit into its
/// inode.
fn refuses(place: &mut impl Place, size: u64, block_size: u64) -> Result<(), Wrong> {
    for (file, offset, length) in [(ALL, size, block_size), (MORE, 0, block_size.max(GRANULE))] {
        let written = place.write(file, offset, &vec![1; length as usize]).and_then(|()| place.fsync(file));
        match written {
            // A mount's page cache may have counted it before the file system refused it.
            Err(Refused::NoSpace) => {
                place.truncate(file, offset).map_err(|error| error.wrong("cutting what was refused"))?;
            }
            Err(error) => return Err(error.wrong("writing one block more than was offered")),
            Ok(()) => return Err(Wrong(format!("file {file}: one block more than was offered fits"))),
        }
    }
    Ok(())
}

/// Writes over what is there, at random; which write each granule is from then.
fn overwrite(place: &mut impl Place, size: u64, times: u64, rng: &mut Rng) -> Result<Vec<u64>, Wrong> {
    let granules = size / GRANULE;
    let mut writes = vec![0; granules as usize];
    let (mut number, mut left) = (0, granules * times);
    while left > 0 {
        number += 1;
        let length = rng.u64(1..=(PIECE / GRANULE).min(granules));
        let at = rng.u64(0..=granules - length);
        let bytes = made(ALL, at * GRANULE, (length * GRANULE) as usize, number);
        place.write(ALL, at * GRANULE, &bytes).map_err(|error| {
            error.wrong(format!("write {number}: {length} granules over those from {at} on of {granules}"))
        })?;
        writes[at as usize..(at + length) as usize].fill(number);
        left = left.saturating_sub(length);
    }
    place.fsync(ALL).map_err(|error| error.wrong("fsync after writing over"))?;
    Ok(writes)
}

fn compare(place: &mut impl Place, writes: &[u64], size: u64, filled: &mut Filled) -> Result<(), Wrong> {
    place.verify().map_err(|error| error.wrong("verifying everything"))?;
    let mut found = vec![0; PIECE as usize];
    for (piece, writes) in writes.chunks((PIECE / GRANULE) as usize).enumerate() {
        let offset = piece as u64 * PIECE;
        let found = &mut found[..writes.len() * GRANULE as usize];
        let read = place.read(ALL, offset, found).map_err(|error| error.wrong("reading"))?;
        if read != (size, found.len()) {
            return Err(Wrong(format!("at {offset} of {size}: {read:?} was read")));
        }
        for ((index, granule), &write) in (0..).zip(found.chunks(GRANULE as usize)).zip(writes) {
            let offset = offset + index * GRANULE;
            if granule != made(ALL, offset, GRANULE as usize, write) {
                return Err(Wrong(format!("at {offset} is not what write {write} put there")));
            }
            filled.compared += GRANULE;
        }
    }
    Ok(())
}
