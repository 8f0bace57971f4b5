//! The allocation tracker: live table, stack store, unwinder, counters
