//! Reading and writing at the cursor of a file: the traits of the standard library.

use std::io::{self, Read, Seek, SeekFrom, Write};

use fs::FsError;

use super::File;
use crate::error::{Error, Result};

impl File {
    /// Sets the cursor. Returns its new offset from the beginning.
    fn move_cursor(&self, to: SeekFrom) -> Result<u64> {
        let mut cursor = self.cursor.lock();
        let (base, distance) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(distance) => (*cursor, distance),
            SeekFrom::End(distance) => (self.metadata()?.len(), distance),
        };
        *cursor = base.checked_add_signed(distance).ok_or(Error::Operation(FsError::Invalid))?;
        Ok(*cursor)
    }

    fn read_at_cursor(&self, into: &mut [u8]) -> Result<usize> {
        let mut cursor = self.cursor.lock();
        let read = self.read_at(into, *cursor)?;
        *cursor += read as u64;
        Ok(read)
    }

    fn write_at_cursor(&self, data: &[u8]) -> Result<usize> {
        let mut cursor = self.cursor.lock();
        // A write of no bytes leaves the cursor where it is.
        let appends = self.opened.appends() && !data.is_empty();
        let (offset, written) = match appends {
            true => self.append_once(&data[..data.len().min(self.opened.append_max())])?,
            false => (*cursor, self.write_at(data, *cursor)?),
        };
        *cursor = offset + written as u64;
        Ok(written)
    }
}

impl Read for &File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_at_cursor(into)?)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.write_at_cursor(data)?)
    }

    /// Does nothing, because there is no buffer. It makes nothing durable: see [`File::sync_data`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Ok(self.move_cursor(to)?)
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
