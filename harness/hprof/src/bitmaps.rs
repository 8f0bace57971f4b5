//! Android bitmaps: their number, their sizes and their pictures.
//!
//! Data flow: instances of `android.graphics.Bitmap` → their size in pixels, and the place of the pixels: an array of
//! the heap (until Android 7.1), otherwise native memory, whose size comes from the cleaner → on request, one more pass
//! reads the bitmaps with an array, one picture at a time.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::analysis::{Heap, native_bytes};
use crate::ids::number;
use crate::read::{Progress, ReadError, Told, Visit};

/// The class of bitmaps.
pub const BITMAP: &str = "android.graphics.Bitmap";
/// Bytes of a pixel with transparency, which nearly all bitmaps have.
const PIXEL: u64 = 4;

/// Receives a bitmap and its pixels.
pub type Show<'a, E> = &'a mut dyn FnMut(&Bitmap, &[u8]) -> Result<(), E>;

/// An Android bitmap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Bitmap {
    /// Object id.
    pub id: u64,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Bytes of the pixels.
    pub bytes: u64,
    /// Where the pixels are.
    pub pixels: Pixels,
    #[serde(skip)]
    buffer: Option<u32>,
}

/// Where the pixels of a bitmap are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pixels {
    /// In an array of the heap.
    Heap,
    /// In native memory, according to its cleaner.
    Native,
    /// Unknown: counted as four bytes per pixel.
    Unknown,
    /// There are no pixels, because the bitmap was recycled.
    Gone,
}

impl Heap {
    /// All bitmaps, largest first.
    #[must_use]
    pub fn bitmaps(&self) -> Vec<Bitmap> {
        let Self { dump, graph, .. } = self;
        if !self.knows_bitmaps() {
            return Vec::new();
        }
        let native = native_bytes(self);
        let mut all: Vec<Bitmap> = graph
            .instances(dump, BITMAP)
            .map(|object| {
                let side = |field| {
                    let side = graph.number(dump, object, field).unwrap_or(0);
                    u32::try_from(side).unwrap_or(0)
                };
                let (width, height) = (side("mWidth"), side("mHeight"));
                let buffer = graph.field(dump, object, "mBuffer");
                let recycled = graph.truth(dump, object, "mRecycled") == Some(true);
                let (bytes, pixels) = match (buffer, native.get(&object)) {
                    (Some(array), _) => (graph.bytes(array), Pixels::Heap),
                    (None, _) if recycled => (0, Pixels::Gone),
                    (None, Some(bytes)) => (*bytes, Pixels::Native),
                    (None, None) => (u64::from(width) * u64::from(height) * PIXEL, Pixels::Unknown),
                };
                Bitmap { id: dump.id(object), width, height, bytes, pixels, buffer }
            })
            .collect();
        all.sort_by_key(|bitmap| (std::cmp::Reverse(bitmap.bytes), bitmap.id));
        all
    }

    /// Does the dump contain the class of bitmaps?
    #[must_use]
    pub fn knows_bitmaps(&self) -> bool {
        self.dump.classes.iter().any(|class| class.name == BITMAP)
    }

    /// Calls `show` for each of these bitmaps whose pixels are in the heap. A pixel has four bytes: red,
    /// green, blue (multiplied by opacity), opacity.
    ///
    /// # Errors
    /// The dump cannot be read any more, or `show` fails.
    pub fn pictures<E: From<ReadError> + From<std::io::Error>>(
        &self,
        bitmaps: &[Bitmap],
        show: Show<'_, E>,
        progress: Progress<'_>,
    ) -> Result<(), E> {
        let wanted = bitmaps.iter().filter_map(|bitmap| {
            let pixels = u64::from(bitmap.width) * u64::from(bitmap.height);
            let array = bitmap.buffer.filter(|_| pixels > 0 && bitmap.bytes == pixels * PIXEL)?;
            Some((self.dump.id(array), bitmap))
        });
        let told = Told { step: "pictures", all: Some(self.dump.bytes), to: progress };
        let mut pass = Pass { wanted: wanted.collect(), reading: None, show, told, failed: None };
        self.file.walk(self.dump.whole, &mut pass)?;
        pass.failed.map_or(Ok(()), Err)
    }
}

struct Pass<'a, E> {
    wanted: HashMap<u64, &'a Bitmap>,
    /// The bitmap that is being read, and the bytes read so far.
    reading: Option<(&'a Bitmap, Vec<u8>)>,
    show: Show<'a, E>,
    told: Told<'a>,
    failed: Option<E>,
}

impl<E> Visit for Pass<'_, E> {
    type Error = ReadError;
    const FIELDS: bool = true;

    fn progress(&mut self, at: u64) {
        self.told.at(at);
    }

    fn primitive_array(&mut self, id: u64, kind: u8, _count: u32, _at: u64) -> bool {
        // If two arrays have the same id, the first one counts.
        self.reading = self.wanted.remove(&id).filter(|_| kind == 8).map(|bitmap| (bitmap, Vec::new()));
        self.reading.is_some() && self.failed.is_none()
    }

    fn values(&mut self, bytes: &[u8]) {
        let Some((bitmap, pixels)) = &mut self.reading else { return };
        pixels.extend_from_slice(bytes);
        if pixels.len() as u64 >= bitmap.bytes {
            self.failed = (self.show)(bitmap, pixels).err();
            self.reading = None;
        }
    }
}

/// Bytes of all bitmaps, and their number.
#[must_use]
pub fn together(bitmaps: &[Bitmap]) -> (u64, u64) {
    let count = u64::from(number(bitmaps.len()));
    (bitmaps.iter().fold(0, |sum, bitmap| sum.saturating_add(bitmap.bytes)), count)
}
