//! Checks whether a system call filter (SECCOMP's filter mode) allows the calls that the agent's hooks make.
//!
//! Data flow: the guest is about to install a filter, a program of classic BPF → the program is run here for each of
//! [`CALLS`], as the kernel will run it → is each of them allowed? The program comes from the guest and is not trusted:
//! it may only jump forwards, and a program that the kernel would refuse gives no answer.

/// Maximum number of steps of a program that the kernel accepts (`BPF_MAXINSNS`).
pub const LONGEST: usize = 4096;
/// Words of the program's memory (`BPF_MEMWORDS`).
const MEMORY: usize = 16;
/// A filter's answers to a call (`SECCOMP_RET_*`): allow it, or allow it and log it.
const ALLOW: u32 = 0x7fff_0000;
const LOG: u32 = 0x7ffc_0000;
/// The part of an answer that decides about the call (`SECCOMP_RET_ACTION_FULL`).
const ACTION: u32 = 0xffff_0000;

/// `AUDIT_ARCH_*` of `linux/audit.h`.
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };

/// A step of the program (`struct sock_filter`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Its operation.
    pub code: u16,
    /// Steps to skip if its condition holds.
    pub jump_true: u8,
    /// Steps to skip if it does not.
    pub jump_false: u8,
    /// Its constant.
    pub k: u32,
}

/// Numbers of system calls.
const MMAP: u32 = if cfg!(target_arch = "aarch64") { 222 } else { 9 };
const MUNMAP: u32 = if cfg!(target_arch = "aarch64") { 215 } else { 11 };
const FUTEX: u32 = if cfg!(target_arch = "aarch64") { 98 } else { 202 };
#[cfg(not(target_os = "android"))]
const SHMCTL: u32 = if cfg!(target_arch = "aarch64") { 195 } else { 31 };

/// A system call: its number, and those of its arguments that are known.
struct Call(u32, [u64; 6]);

/// The system calls that a hook may make.
const CALLS: [Call; 5] = {
    const ACCESS: u64 = 3; // PROT_READ | PROT_WRITE
    const FLAGS: u64 = 0x2_4022; // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK
    const PAGE: u64 = 4096;
    [
        Call(MMAP, [0, PAGE, ACCESS, FLAGS, u64::MAX, 0]),
        Call(MUNMAP, [PAGE, PAGE, 0, 0, 0, 0]),
        // FUTEX_WAIT, FUTEX_WAKE and FUTEX_LOCK_PI, each of this process alone.
        Call(FUTEX, [PAGE, 128, 0, 0, 0, 0]),
        Call(FUTEX, [PAGE, 129, 1, 0, 0, 0]),
        Call(FUTEX, [PAGE, 134, 0, 0, 0, 0]),
    ]
};

/// The additional call for System V segments: IPC_STAT.
#[cfg(not(target_os = "android"))]
const STAT: Call = Call(SHMCTL, [0, 2, 4096, 0, 0, 0]);

/// Does the filter with this many steps allow the calls of hooks? Also true for a filter that the kernel refuses.
pub(crate) fn allows_hooks(length: usize, step: impl Fn(usize) -> Step) -> bool {
    allows(&CALLS, length, step)
}

/// The same for calls about System V segments.
#[cfg(not(target_os = "android"))]
pub(crate) fn allows_segments(length: usize, step: impl Fn(usize) -> Step) -> bool {
    allows(&[STAT], length, step)
}

fn allows(calls: &[Call], length: usize, step: impl Fn(usize) -> Step) -> bool {
    calls.iter().all(|call| match answer(length, &step, call) {
        Some(answer) => matches!(answer & ACTION, ALLOW | LOG),
        None => true,
    })
}

/// The answer of the program; `None`: the kernel refuses such a program.
fn answer(length: usize, step: &impl Fn(usize) -> Step, call: &Call) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY]);
    let mut at = 0_usize;
    while at < length {
        let Step { code, jump_true, jump_false, k } = step(at);
        at = at.saturating_add(1);
        let word = k as usize;
        let operand = if code & 0x08 == 0 { k } else { x };
        match code {
            0x20 => a = data(call, k)?,                     // ld [k]
            0x80 | 0x81 => *reg(code, &mut a, &mut x) = 64, // ld/ldx the length of the data
            0x00 | 0x01 => *reg(code, &mut a, &mut x) = k,
            0x60 | 0x61 => *reg(code, &mut a, &mut x) = *memory.get(word)?,
            0x02 => *memory.get_mut(word)? = a,
            0x03 => *memory.get_mut(word)? = x,
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            0x34 | 0x3c => match a.checked_div(operand) {
                Some(quotient) => a = quotient,
                None => return Some(0),
            },
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0xa4 | 0xac => a ^= operand,
            0x64 | 0x6c => a = a.wrapping_shl(operand),
            0x74 | 0x7c => a = a.wrapping_shr(operand),
            0x84 => a = a.wrapping_neg(),
            0x07 => x = a,
            0x87 => a = x,
            0x05 => at = at.checked_add(word)?,
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                let holds = match code & 0xf0 {
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    _ => a & operand != 0,
                };
                at = at.saturating_add(usize::from(if holds { jump_true } else { jump_false }));
            }
            0x06 => return Some(k),
            0x16 => return Some(a),
            _ => return None,
        }
    }
    None
}

fn reg<'a>(code: u16, a: &'a mut u32, x: &'a mut u32) -> &'a mut u32 {
    if code & 1 == 0 { a } else { x }
}

/// A word of `struct seccomp_data`: number, architecture, instruction pointer, arguments.
fn data(Call(number, arguments): &Call, offset: u32) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, reason = "half of the word is asked for")]
    let half = |word: u64| if offset.is_multiple_of(8) { word as u32 } else { (word >> 32) as u32 };
    match offset {
        0 => Some(*number),
        4 => Some(ARCHITECTURE),
        8 | 12 => Some(0),
        _ if offset.is_multiple_of(4) => {
            arguments.get((offset as usize / 8).checked_sub(2)?).map(|argument| half(*argument))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(code: u16, k: u32) -> Step {
        Step { code, jump_true: 0, jump_false: 0, k }
    }

    const fn jump(code: u16, k: u32, jump_true: u8, jump_false: u8) -> Step {
        Step { code, jump_true, jump_false, k }
    }

    fn at(program: &[Step]) -> impl Fn(usize) -> Step {
        |at| *program.get(at).unwrap()
    }

    fn allowed(program: &[Step]) -> bool {
        allows_hooks(program.len(), at(program))
    }

    fn told(program: &[Step]) -> Option<u32> {
        answer(program.len(), &at(program), CALLS.first().unwrap())
    }

    const KILL: u32 = 0x8000_0000;
    const ERRNO: u32 = 0x0005_0001;

    #[test]
    fn what_hooks_need_is_allowed_or_not() {
        let actions = [(ALLOW, true), (LOG, true), (ALLOW | 7, true), (ERRNO, false), (KILL, false)];
        for (action, is_allowed) in actions {
            assert_eq!(allowed(&[step(0x06, action)]), is_allowed, "{action:#x}");
        }
        let all_but = |refused: u32| {
            allowed(&[step(0x20, 0), jump(0x15, refused, 0, 1), step(0x06, KILL), step(0x06, ALLOW)])
        };
        assert!([MMAP, MUNMAP, FUTEX].iter().all(|call| !all_but(*call)), "each of them counts");
        assert!(all_but(1), "and no other");
        let segments = |refused: u32| {
            let steps = [step(0x20, 0), jump(0x15, refused, 0, 1), step(0x06, KILL), step(0x06, ALLOW)];
            allows_segments(steps.len(), at(&steps))
        };
        assert!(!segments(SHMCTL) && segments(MMAP) && all_but(SHMCTL), "that of segments counts for itself");
        let of_this_machine = |architecture| {
            allowed(&[step(0x20, 4), jump(0x15, architecture, 1, 0), step(0x06, KILL), step(0x06, ALLOW)])
        };
        assert!(of_this_machine(ARCHITECTURE) && !of_this_machine(3));
    }

    #[test]
    fn arguments_are_looked_at() {
        let refused_for = |argument: u32, condition: Step| {
            let steps = [step(0x20, 0), jump(0x15, MMAP, 0, 3), step(0x20, argument), condition];
            !allowed(&[&steps[..], &[step(0x06, KILL), step(0x06, ALLOW)]].concat())
        };
        // This filter refuses executable memory, like the filters of services.
        assert!(!refused_for(16 + 2 * 8, jump(0x45, 4, 0, 1)), "ours cannot be executed");
        assert!(refused_for(16 + 2 * 8, jump(0x45, 2, 0, 1)), "but written");
        assert!(!refused_for(16 + 4 * 8 + 4, jump(0x15, u32::MAX, 1, 0)), "the upper half of an argument");
    }

    #[test]
    fn arithmetic_is_the_kernels() {
        // Each step once, compared with numbers worked out by hand.
        let steps = [
            (step(0x04, 4), 10),
            (step(0x24, 8), 80),
            (step(0x14, 16), 64),
            (step(0x34, 4), 16),
            (step(0x44, 33), 49),
            (step(0x54, 48), 48),
            (step(0xa4, 17), 33),
            (step(0x64, 2), 132),
            (step(0x74, 3), 16),
            (step(0x84, 0), 16_u32.wrapping_neg()),
        ];
        let mut program = vec![step(0x00, 6)];
        for (next, result) in steps {
            program.push(next);
            // Stores to memory, to x and memory, and loads back.
            let around = [step(0x02, 15), step(0x61, 15), step(0x03, 1), step(0x60, 1), step(0x16, 0)];
            assert_eq!(told(&[&program[..], &around].concat()), Some(result), "{next:?}");
        }
        assert_eq!(told(&[step(0x3c, 0), step(0x06, ALLOW)]), Some(0), "a division by zero kills");
    }

    #[test]
    fn a_program_that_the_kernel_refuses_tells_nothing() {
        let refused: [&[Step]; 7] = [
            &[],
            &[step(0x04, 1)],
            &[step(0xff, 0), step(0x06, KILL)],
            &[step(0x20, 64), step(0x06, KILL)],
            &[step(0x20, 2), step(0x06, KILL)],
            &[step(0x60, 16), step(0x06, KILL)],
            &[step(0x05, u32::MAX), step(0x06, KILL)],
        ];
        for program in refused {
            assert!(allowed(program), "{program:?}");
        }
    }
}
