//! The standard library's panic printer refers to the system unwinder, so every guest would load libgcc_s. The agent
//! prints no backtraces, so these replacements end each walk at once. They are not exported.
#![expect(unsafe_code, reason = "defines symbols by name")]

#[cfg(target_arch = "x86_64")]
macro_rules! result {
    () => {
        "mov eax, \\value"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! result {
    () => {
        "mov w0, \\value"
    };
}

core::arch::global_asm!(
    ".text",
    ".macro memgate_stub name value",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name,@function",
    "\\name:",
    result!(),
    "ret",
    ".size \\name, . - \\name",
    ".endm",
    // _URC_END_OF_STACK
    "memgate_stub _Unwind_Backtrace 5",
    "memgate_stub _Unwind_GetIP 0",
    "memgate_stub _Unwind_GetIPInfo 0",
    "memgate_stub _Unwind_GetCFA 0",
    "memgate_stub _Unwind_FindEnclosingFunction 0",
    "memgate_stub _Unwind_GetLanguageSpecificData 0",
    "memgate_stub _Unwind_GetRegionStart 0",
    "memgate_stub _Unwind_GetTextRelBase 0",
    "memgate_stub _Unwind_GetDataRelBase 0",
    "memgate_stub _Unwind_SetGR 0",
    "memgate_stub _Unwind_SetIP 0",
    "memgate_stub _Unwind_DeleteException 0",
    "memgate_stub _Unwind_RaiseException 5",
    "memgate_stub _Unwind_Resume 0",
);
