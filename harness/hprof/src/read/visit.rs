//! The interface between a walk and its visitors.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::ReadError;
use super::odd::Odd;

/// The first bytes of a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// `JAVA PROFILE 1.0.x`.
    pub title: String,
    /// 4 or 8.
    pub id_bytes: usize,
    /// Since 1970; 0: unknown.
    pub milliseconds: u64,
}

/// A static field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Static {
    /// Id of its name.
    pub name: u64,
    /// Type: 2 object, 4 to 11 primitive.
    pub kind: u8,
    /// Its value, as bits.
    pub value: u64,
}

/// A field of instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Id of its name.
    pub name: u64,
    /// Type: 2 object, 4 to 11 primitive.
    pub kind: u8,
}

/// A class, as recorded in a heap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassDump {
    /// Id of the class object.
    pub id: u64,
    /// The superclass; 0: none.
    pub super_id: u64,
    /// Its class loader; 0: the boot loader.
    pub loader: u64,
    /// Its signers; 0: none.
    pub signers: u64,
    /// Its protection domain; 0: none.
    pub domain: u64,
    /// Bytes of an instance, as the virtual machine reports them.
    pub instance_bytes: u32,
    /// Bytes of this record after its tag.
    pub record_bytes: u64,
    /// Static fields in order.
    pub statics: Vec<Static>,
    /// Its own fields in order.
    pub fields: Vec<Field>,
}

/// Receives the contents that a walk finds. All methods are optional; the error type is not.
pub trait Visit {
    /// An error that ends a walk early.
    type Error: From<io::Error> + From<ReadError>;
    /// Does [`Visit::copy`] get every byte?
    const COPIES: bool = false;
    /// Are the bytes of instances and the elements of object arrays wanted?
    const FIELDS: bool = false;
    /// Are the values of primitive arrays missing, although the lengths of heaps include them? If so, zeros are copied
    /// instead.
    const CROPPED: bool = false;

    /// The next bytes of the dump. `content`: they are values of a primitive array that [`Visit::primitive_array`] did
    /// not want, or content according to the next two functions.
    ///
    /// # Errors
    /// An error ends the walk.
    fn copy(&mut self, _bytes: &[u8], _content: bool) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Which bytes of the instances of a class are content, in order? `None`: none. Called only if [`Visit::COPIES`].
    fn content_of(&mut self, _class: u64) -> Option<Arc<[Range<u64>]>> {
        None
    }

    /// Is the value of this static field content? Called for primitive fields, only if [`Visit::COPIES`].
    fn is_content(&mut self, _class: u64, _field: u64) -> bool {
        false
    }

    /// Is a copy of this text wanted? Called only if [`Visit::COPIES`].
    fn wants_text(&mut self, _id: u64) -> bool {
        true
    }

    /// Something is odd at byte `at`. An error ends the walk; without one it continues as well as it can.
    ///
    /// # Errors
    /// An error ends the walk.
    fn odd(&mut self, _odd: Odd, _at: u64) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The error for a file that is no heap dump: it has no title, or no size of ids. If the dump was read before, it
    /// has changed.
    fn not_a_dump(&self) -> Self::Error {
        ReadError::Changed.into()
    }

    /// The walk is at byte `at`; called now and then.
    fn progress(&mut self, _at: u64) {}

    /// The head of the file.
    fn header(&mut self, _header: &Header) {}

    /// A record begins at byte `at`.
    fn record(&mut self, _tag: u8, _at: u64) {}

    /// A heap begins (again); `false`: not wanted.
    fn heap(&mut self, _tag: u8, _at: u64) -> bool {
        true
    }

    /// The first 64 KiB of a text.
    fn string(&mut self, _id: u64, _text: &[u8]) {}

    /// Name of a class.
    fn load_class(&mut self, _serial: u32, _id: u64, _name: u64) {}

    /// A frame of a stack: method, signature, source, class serial, line.
    fn frame(&mut self, _id: u64, _names: [u64; 3], _class: u32, _line: i32) {}

    /// A stack: serial, thread, ids of its frames.
    fn trace(&mut self, _serial: u32, _thread: u32, _frames: &[u64]) {}

    /// The following objects belong to this heap (Android).
    fn heap_info(&mut self, _heap: u32, _name: u64) {}

    /// A root: its tag, object, thread and frame (0 if it has none).
    fn root(&mut self, _tag: u8, _id: u64, _thread: u32, _frame: u32) {}

    /// A class.
    fn class(&mut self, _class: &ClassDump, _at: u64) {}

    /// An instance; its bytes if [`Visit::FIELDS`].
    fn instance(&mut self, _id: u64, _class: u64, _length: u32, _bytes: &[u8], _at: u64) {}

    /// An array of objects. With [`Visit::FIELDS`] its elements follow.
    fn object_array(&mut self, _id: u64, _class: u64, _count: u32, _at: u64) {}

    /// Elements of the last array.
    fn elements(&mut self, _ids: &[u8]) {}

    /// The elements of the last array are complete.
    fn elements_end(&mut self) {}

    /// An array of primitives. Returns whether its values are wanted; this counts only with [`Visit::FIELDS`] or
    /// [`Visit::COPIES`].
    fn primitive_array(&mut self, _id: u64, _kind: u8, _count: u32, _at: u64) -> bool {
        false
    }

    /// Values of the last array, if they were wanted.
    fn values(&mut self, _bytes: &[u8]) {}
}
