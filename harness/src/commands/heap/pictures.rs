//! `memgate heap bitmaps --extract`: writes pictures as PNG files.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use memgate_hprof::read::ReadError;
use memgate_hprof::{Bitmap, Heap};

use super::read::bad;
use super::watch::Watch;
use crate::exit::ExpectedError;

/// Why no picture was written.
enum Failed {
    Read(ReadError),
    Write(PathBuf, io::Error),
}

impl From<ReadError> for Failed {
    fn from(why: ReadError) -> Self {
        Self::Read(why)
    }
}

impl From<io::Error> for Failed {
    fn from(why: io::Error) -> Self {
        Self::Read(why.into())
    }
}

/// Writes the pictures whose pixels are in the heap; returns their number.
pub(super) fn extract(
    (from, heap): (&Path, &Heap),
    bitmaps: &[Bitmap],
    folder: &Path,
    watch: &Watch<'_>,
) -> Result<usize, ExpectedError> {
    fs::create_dir_all(folder).map_err(ExpectedError::file("create", folder))?;
    let mut written = 0;
    let mut show = |bitmap: &Bitmap, pixels: &[u8]| {
        let path = folder.join(format!("0x{:x}.png", bitmap.id));
        write(&path, bitmap, pixels).map_err(|why| Failed::Write(path, why))?;
        written += 1;
        Ok(())
    };
    let read = watch.passes(|told| heap.pictures::<Failed>(bitmaps, &mut show, told));
    read.map_err(|why| match why {
        Failed::Read(why) => bad(from)(why),
        Failed::Write(path, why) => ExpectedError::file("write", &path)(why),
    })?;
    Ok(written)
}

fn write(path: &Path, bitmap: &Bitmap, pixels: &[u8]) -> io::Result<()> {
    let straight: Vec<u8> = pixels.as_chunks::<4>().0.iter().flat_map(|pixel| straight(*pixel)).collect();
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), bitmap.width, bitmap.height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut image = encoder.write_header().map_err(io::Error::other)?;
    image.write_image_data(&straight).map_err(io::Error::other)?;
    image.finish().map_err(io::Error::other)
}

/// Undoes Android's multiplication of colours by opacity, which PNG does not use.
fn straight([red, green, blue, opacity]: [u8; 4]) -> [u8; 4] {
    let of = |colour: u8| match opacity {
        0 => 0,
        opacity => u8::try_from(u32::from(colour) * 255 / u32::from(opacity)).unwrap_or(255),
    };
    [of(red), of(green), of(blue), opacity]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_before_they_were_multiplied() {
        assert_eq!(straight([128, 64, 0, 128]), [255, 127, 0, 128]);
        assert_eq!(straight([9, 9, 9, 0]), [0, 0, 0, 0]);
        assert_eq!(straight([255, 200, 1, 100]), [255, 255, 2, 100], "damaged bytes are cut");
    }
}
