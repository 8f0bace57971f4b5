//! Charts as PNG, for mail and chats, which show no SVG.

use plotters::prelude::*;
use png::{BitDepth, ColorType, Encoder};

use super::draw::{SIZE, Threshold, draw, with_font};
use super::plot::Plot;
use crate::error::RenderError;

/// Twice as large as it is shown.
pub(crate) fn png(plot: &Plot) -> Result<Vec<u8>, RenderError> {
    with_font()?;
    let (width, height) = SIZE;
    let mut pixels = vec![0xff_u8; width as usize * height as usize * 3];
    {
        let root = BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area();
        draw(&root, plot, Threshold::InPieces)?;
    }
    let broken = |why: png::EncodingError| RenderError::Chart(why.to_string());
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(broken)?;
    writer.write_image_data(&pixels).map_err(broken)?;
    writer.finish().map_err(broken)?;
    Ok(bytes)
}
