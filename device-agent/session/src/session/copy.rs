//! Makes a sleeping copy of the process, for the harness to read.

use core::time::Duration;

use memgate_ffi::{copy, modules, process};
use memgate_wire::Frame;
use memgate_wire::native_holders::{NativeCopy, TableLayout, ThreadLocalModule};

use super::SESSION;
use crate::recording::TRACKER;

/// A copy of the process ends by itself after this time. A harness that reads the copy ends it earlier.
const COPY_LASTS: Duration = Duration::from_secs(60);

/// Makes a copy of the process, for the harness to read, and reports it.
pub(super) fn copy_process() {
    let table = TRACKER.table_layout();
    // The reader of a copy needs the stacks of all blocks.
    let copied = if table.is_some() { copy::make(COPY_LASTS) } else { copy::Copied::refused() };
    let layout = table.unwrap_or_default();
    let narrow = |bits: u32| u8::try_from(bits).unwrap_or(0);
    let [top, mid, slot] = layout.bits.map(narrow);
    let [stack, epoch, size] = layout.word.map(narrow);
    let table = TableLayout {
        top: layout.top,
        bits: (top, mid, slot),
        granule_shift: u8::try_from(layout.granule_shift).unwrap_or(0),
        word: (stack, epoch, size),
        spill: layout.spill,
        segments: u32::try_from(layout.segments).unwrap_or(0),
        first_cells: u32::try_from(layout.first_cells).unwrap_or(0),
    };
    let modules = modules::thread_local();
    if let Some(session) = SESSION.lock().as_mut() {
        let path = |path: String| if path.is_empty() { session.executable().to_owned() } else { path };
        let of_module = |module: modules::ThreadLocal| ThreadLocalModule {
            path: path(module.path),
            number: module.number,
            bytes: module.bytes,
        };
        let thread_local = modules.into_iter().map(of_module).collect();
        let told = NativeCopy {
            boundary: session.sequence,
            pid: copied.pid,
            error: copied.error,
            took_ns: copied.took_ns,
            thread_id: process::thread_id(),
            stack_pointer: copied.stack_pointer,
            thread_pointer: memgate_tracker::sys::thread_pointer() as u64,
            table,
            thread_local,
        };
        session.append(&Frame::NativeCopy(told));
    }
}
