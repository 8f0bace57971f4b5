//! Inserts calls into a class.

use crate::Refused;
use crate::class::{Class, Code, Reader};

const ALOAD_1: u8 = 0x2b;
const INVOKESTATIC: u8 = 0xb8;
const RETURN: u8 = 0xb1;
/// `aload_1; invokestatic`. A multiple of four keeps the padding of switches valid.
const CALL_BYTES: u8 = 4;
/// The descriptor of all called methods.
const TAKES_OBJECT: &str = "(Ljava/lang/Object;)V";
/// Number of constants of one call: class name, class, method name, name and type, method. The descriptor is shared.
const CONSTANTS_PER_CALL: u16 = 5;

/// Position of the call in the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Before everything else.
    Start,
    /// Before the `return` at the end of the code. Jumps to that `return` arrive before the call.
    End,
}

/// A call of a static method that takes an `Object`: the first parameter of the instance method into which the call is
/// inserted.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Method that is changed.
    pub method: &'a str,
    /// Its descriptor; it takes one reference and returns nothing.
    pub descriptor: &'a str,
    /// Position of the call.
    pub place: Place,
    /// Class that is called, with slashes.
    pub class: &'a str,
    /// Static method that is called.
    pub callee: &'a str,
}

/// A position in the file at which bytes are inserted or replaced.
struct Edit {
    at: usize,
    /// Number of bytes of the old file that are skipped.
    skip: usize,
    bytes: Vec<u8>,
}

/// Returns the class with the calls inserted.
///
/// # Errors
/// The class is damaged or has an unsupported shape, and is not changed; see [`Refused`].
pub fn insert_calls(bytes: &[u8], calls: &[Call<'_>]) -> Result<Vec<u8>, Refused> {
    let class = Class::read(bytes)?;
    let count = u16::try_from(calls.len()).ok().ok_or(Refused::Full)?;
    let more = count.checked_mul(CONSTANTS_PER_CALL).and_then(|n| n.checked_add(1)).ok_or(Refused::Full)?;
    let pool_count = class.pool_count.checked_add(more).ok_or(Refused::Full)?;
    let mut constants = Vec::new();
    utf8(&mut constants, TAKES_OBJECT)?;
    let descriptor = class.pool_count;
    let mut next = descriptor.saturating_add(1);
    let mut edits = vec![Edit { at: 8, skip: 2, bytes: pool_count.to_be_bytes().to_vec() }];
    for call in calls {
        let callee = push_callee(&mut constants, &mut next, descriptor, call)?;
        let code = class.code(call.method, call.descriptor)?;
        let [high, low] = callee.to_be_bytes();
        let inserted = vec![ALOAD_1, INVOKESTATIC, high, low];
        edits.extend(lengths(bytes, code)?);
        match call.place {
            Place::Start => {
                edits.push(Edit { at: code.start, skip: 0, bytes: inserted });
                edits.extend(moved_tables(&class, code)?);
            }
            Place::End => {
                let last = code.end.checked_sub(1).filter(|&at| bytes.get(at) == Some(&RETURN));
                let at = last.ok_or(Refused::Shape("it does not end with `return`"))?;
                edits.push(Edit { at, skip: 0, bytes: inserted });
            }
        }
    }
    edits.push(Edit { at: class.pool_end, skip: 0, bytes: constants });
    let changed = apply(bytes, edits)?;
    // A class with overlapping parts may be readable before the change and not after it.
    Class::read(&changed)?;
    Ok(changed)
}

/// Adds the constants of one call and returns the index of the method reference.
fn push_callee(to: &mut Vec<u8>, next: &mut u16, descriptor: u16, call: &Call<'_>) -> Result<u16, Refused> {
    let index = |offset: u16| next.checked_add(offset).ok_or(Refused::Full);
    let (class_name, class, name, name_and_type, method) =
        (*next, index(1)?, index(2)?, index(3)?, index(4)?);
    utf8(to, call.class)?;
    to.push(7);
    to.extend_from_slice(&class_name.to_be_bytes());
    utf8(to, call.callee)?;
    to.push(12);
    to.extend_from_slice(&name.to_be_bytes());
    to.extend_from_slice(&descriptor.to_be_bytes());
    to.push(10);
    to.extend_from_slice(&class.to_be_bytes());
    to.extend_from_slice(&name_and_type.to_be_bytes());
    *next = index(CONSTANTS_PER_CALL)?;
    Ok(method)
}

fn utf8(to: &mut Vec<u8>, text: &str) -> Result<(), Refused> {
    let length = u16::try_from(text.len()).ok().ok_or(Refused::Full)?;
    to.push(1);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(text.as_bytes());
    Ok(())
}

/// The edits for the longer attribute, the longer code, and room for one word on the operand stack.
fn lengths(bytes: &[u8], code: Code) -> Result<[Edit; 3], Refused> {
    let mut r = Reader::new(bytes, code.length_at);
    let attribute = r.u32()?;
    let stack_at = r.at;
    let stack = r.u16()?;
    r.take(2)?;
    let length_at = r.at;
    let length = r.u32()?;
    // The specification allows 65,535 bytes of code.
    let longer = u16::try_from(length).ok().and_then(|n| n.checked_add(CALL_BYTES.into()));
    let longer = longer.ok_or(Refused::Shape("it is as long as code can be"))?;
    let attribute = u32::try_from(attribute).ok().and_then(|n| n.checked_add(CALL_BYTES.into()));
    let attribute = attribute.ok_or(Refused::Damaged(code.length_at))?;
    Ok([
        Edit { at: code.length_at, skip: 4, bytes: attribute.to_be_bytes().to_vec() },
        Edit { at: stack_at, skip: 2, bytes: stack.max(1).to_be_bytes().to_vec() },
        Edit { at: length_at, skip: 4, bytes: u32::from(longer).to_be_bytes().to_vec() },
    ])
}

/// The edits for tables that contain code positions, which the inserted call moves. A class with a table that a
/// verifier reads is refused.
fn moved_tables(class: &Class<'_>, code: Code) -> Result<Vec<Edit>, Refused> {
    let mut r = Reader::new(class.bytes, code.end);
    if r.u16()? != 0 {
        return Err(Refused::Shape("it has exception handlers"));
    }
    let mut edits = Vec::new();
    let attributes = r.u16()?;
    for _ in 0..attributes {
        let name = class.text(r.u16()?);
        let length = r.u32()?;
        let mut body = r;
        r.take(length)?;
        // Size of a row in bytes. Its first two bytes are a position.
        let row = match name {
            Some(b"LineNumberTable") => 4,
            Some(b"LocalVariableTable" | b"LocalVariableTypeTable") => 10,
            Some(b"StackMapTable") => return Err(Refused::Shape("it has jumps")),
            _ => continue,
        };
        let rows = body.u16()?;
        for _ in 0..rows {
            let at = body.at;
            let mut entry = Reader::new(body.take(row)?, 0);
            let position = entry.u16()?;
            // A row that begins at the start of the method still does.
            if position != 0 {
                let moved = position.checked_add(CALL_BYTES.into()).ok_or(Refused::Damaged(at))?;
                edits.push(Edit { at, skip: 2, bytes: moved.to_be_bytes().to_vec() });
            } else if row == 10 {
                let moved = entry.u16()?.checked_add(CALL_BYTES.into()).ok_or(Refused::Damaged(at))?;
                edits.push(Edit { at: at.saturating_add(2), skip: 2, bytes: moved.to_be_bytes().to_vec() });
            }
        }
    }
    Ok(edits)
}

fn apply(bytes: &[u8], mut edits: Vec<Edit>) -> Result<Vec<u8>, Refused> {
    edits.sort_by_key(|edit| edit.at);
    let mut out = Vec::new();
    let mut from = 0;
    for edit in edits {
        // Two calls in one method would overlap here.
        out.extend_from_slice(bytes.get(from..edit.at).ok_or(Refused::Shape("two calls in one method"))?);
        out.extend_from_slice(&edit.bytes);
        from = edit.at.saturating_add(edit.skip);
    }
    out.extend_from_slice(bytes.get(from..).ok_or(Refused::Damaged(from))?);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn short(length: usize) -> [u8; 2] {
        u16::try_from(length).unwrap().to_be_bytes()
    }

    fn long(length: usize) -> [u8; 4] {
        u32::try_from(length).unwrap().to_be_bytes()
    }

    const STARTED: Call<'_> = Call {
        method: "fireTestStarted",
        descriptor: "(Lorg/junit/runner/Description;)V",
        place: Place::End,
        class: "io/memgate/agent/Hooks",
        callee: "started",
    };
    const FINISHED: Call<'_> =
        Call { method: "fireTestFinished", place: Place::Start, callee: "finished", ..STARTED };

    /// `(name of the attribute, its body)`
    type Attribute = (&'static str, Vec<u8>);

    /// A class with a long constant, a field with an attribute, and the two methods.
    fn class(started: &[u8], finished: &[u8], attributes: Vec<Attribute>) -> Vec<u8> {
        let texts = [
            "Code",
            "fireTestStarted",
            "fireTestFinished",
            STARTED.descriptor,
            "LineNumberTable",
            "StackMapTable",
            "LocalVariableTable",
            "Own",
        ];
        let index = |text: &str| short(1 + texts.iter().position(|t| *t == text).unwrap());
        let mut out = vec![0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 52];
        // The long takes two indices, and index 0 is never used.
        out.extend(short(texts.len() + 3));
        for text in texts {
            utf8(&mut out, text).unwrap();
        }
        out.extend([5, 0, 0, 0, 0, 0, 0, 0, 7]);
        out.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        out.extend([0, 1, 0, 2]);
        out.extend([index("Own"), index("Own")].concat());
        out.extend([0, 1]);
        out.extend(index("Own"));
        out.extend([0, 0, 0, 2, 9, 9]);
        out.extend([0, 2]);
        for (name, code, attributes) in
            [("fireTestStarted", started, Vec::new()), ("fireTestFinished", finished, attributes)]
        {
            out.extend([0, 1]);
            out.extend(index(name));
            out.extend(index(STARTED.descriptor));
            out.extend([0, 1]);
            out.extend(index("Code"));
            let mut body = vec![0, 0, 0, 2];
            body.extend(long(code.len()));
            body.extend(code);
            body.extend([0, 0]);
            body.extend(short(attributes.len()));
            for (name, content) in attributes {
                body.extend(index(name));
                body.extend(long(content.len()));
                body.extend(content);
            }
            out.extend(long(body.len()));
            out.extend(body);
        }
        out.extend([0, 0]);
        out
    }

    /// Max stack, code and the data after the code of a method.
    fn code_of(bytes: &[u8], call: &Call<'_>) -> (u16, Vec<u8>, Vec<u8>) {
        let class = Class::read(bytes).unwrap();
        let code = class.code(call.method, call.descriptor).unwrap();
        let mut r = Reader::new(bytes, code.length_at);
        let length = r.u32().unwrap();
        let stack = r.u16().unwrap();
        (stack, bytes[code.start..code.end].to_vec(), bytes[code.end..code.length_at + 4 + length].to_vec())
    }

    #[test]
    fn both_calls_stand_where_they_belong_and_name_what_they_call() {
        let before = class(&[0, 0, RETURN], &[0, RETURN], Vec::new());
        let after = insert_calls(&before, &[STARTED, FINISHED]).unwrap();
        let (stack, code, _) = code_of(&after, &STARTED);
        let [0, 0, ALOAD_1, INVOKESTATIC, high, low, RETURN] = code[..] else { panic!("{code:?}") };
        assert_eq!(stack, 1, "the argument needs room on the stack");
        // descriptor at 11, then class name, class, name, name and type, method
        assert_eq!(u16::from_be_bytes([high, low]), 16);
        let (_, code, _) = code_of(&after, &FINISHED);
        assert_eq!(code, [ALOAD_1, INVOKESTATIC, 0, 21, 0, RETURN]);
        let read = Class::read(&after).unwrap();
        assert_eq!(read.pool_count, 11 + 11);
        assert_eq!(
            [11, 12, 14, 17, 19].map(|i| read.text(i).unwrap()),
            [
                TAKES_OBJECT.as_bytes(),
                b"io/memgate/agent/Hooks",
                b"started",
                b"io/memgate/agent/Hooks",
                b"finished"
            ]
        );
    }

    #[test]
    fn lines_and_variables_move_with_the_code() {
        let lines = vec![0, 2, 0, 0, 0, 40, 0, 1, 0, 41];
        let variables = vec![0, 2, 0, 0, 0, 2, 0, 8, 0, 8, 0, 0, 0, 1, 0, 1, 0, 8, 0, 8, 0, 2];
        let before = class(
            &[RETURN],
            &[0, RETURN],
            vec![("LineNumberTable", lines), ("LocalVariableTable", variables), ("Own", vec![1])],
        );
        let (_, _, tail) = code_of(&insert_calls(&before, &[FINISHED]).unwrap(), &FINISHED);
        assert_eq!(tail[10..20], [0, 2, 0, 0, 0, 40, 0, 5, 0, 41]);
        assert_eq!(tail[26..48], [0, 2, 0, 0, 0, 6, 0, 8, 0, 8, 0, 0, 0, 5, 0, 1, 0, 8, 0, 8, 0, 2]);
    }

    #[test]
    fn a_class_of_another_shape_is_left_alone() {
        let shape = |bytes: &[u8], call| match insert_calls(bytes, &[call]) {
            Err(Refused::Shape(why)) => why,
            other => panic!("{other:?}"),
        };
        let jumps = class(&[RETURN], &[0, RETURN], vec![("StackMapTable", vec![0, 0])]);
        assert_eq!(shape(&jumps, FINISHED), "it has jumps");
        let throws = class(&[0, 0xbf], &[RETURN], Vec::new());
        assert_eq!(shape(&throws, STARTED), "it does not end with `return`");
        let long = class(&vec![RETURN; 65_533], &[RETURN], Vec::new());
        assert_eq!(shape(&long, STARTED), "it is as long as code can be");
        let other = Call { method: "fireTestIgnored", ..STARTED };
        assert_eq!(insert_calls(&jumps, &[other]), Err(Refused::NoMethod));
        assert!(insert_calls(&jumps, &[STARTED]).is_ok(), "jumps to the end stay right");
    }

    #[test]
    fn every_shorter_class_is_an_error() {
        let whole = class(&[RETURN], &[RETURN], Vec::new());
        // The attributes of the class itself are not read. Everything before them is needed.
        for end in 0..whole.len() - 2 {
            assert!(insert_calls(&whole[..end], &[STARTED, FINISHED]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_class_with_a_wrong_count_of_constants_is_not_made_worse() {
        let mut bytes = class(&[0, RETURN], &[RETURN], vec![("LineNumberTable", vec![0, 1, 0, 0, 0, 1])]);
        bytes[9] = 10;
        assert!(insert_calls(&bytes, &[STARTED, FINISHED]).is_err());
    }

    proptest! {
        #[test]
        fn a_changed_byte_never_panics(at in 0_usize..400, byte in any::<u8>()) {
            let mut bytes = class(&[0, RETURN], &[RETURN], vec![("LineNumberTable", vec![0, 1, 0, 0, 0, 1])]);
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(changed) = insert_calls(&bytes, &[STARTED, FINISHED]) {
                prop_assert!(Class::read(&changed).is_ok());
            }
        }
    }
}
