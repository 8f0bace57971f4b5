//! Reads the parts of a class file that are needed to find methods and their code. Total: every input gives a class or
//! an error.

use crate::Refused;

const UTF8: u8 = 1;

/// A position in a class file; every read is checked.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Refused> {
        let end = self.at.checked_add(count).ok_or(Refused::Damaged(self.at))?;
        let taken = self.bytes.get(self.at..end).ok_or(Refused::Damaged(self.at))?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let at = self.at;
        self.take(N)?.try_into().ok().ok_or(Refused::Damaged(at))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Refused> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Refused> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<usize, Refused> {
        let at = self.at;
        usize::try_from(u32::from_be_bytes(self.array()?)).ok().ok_or(Refused::Damaged(at))
    }
}

/// The result of reading a class file. Positions are offsets from its start.
pub(crate) struct Class<'a> {
    pub(crate) bytes: &'a [u8],
    /// Number of constant pool entries plus one, as in the file.
    pub(crate) pool_count: u16,
    /// Offset after the last constant.
    pub(crate) pool_end: usize,
    /// Texts of the constant pool by index.
    texts: Vec<Option<&'a [u8]>>,
    /// Offset after the count of methods.
    methods: usize,
    method_count: u16,
}

/// The code of a method.
#[derive(Clone, Copy)]
pub(crate) struct Code {
    /// Offset of the four length bytes of the `Code` attribute.
    pub(crate) length_at: usize,
    /// Offset of the first instruction.
    pub(crate) start: usize,
    /// Offset after the last instruction, where the exception table begins.
    pub(crate) end: usize,
}

impl<'a> Class<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Refused> {
        let mut r = Reader::new(bytes, 0);
        if r.take(4)? != [0xca, 0xfe, 0xba, 0xbe] {
            return Err(Refused::Damaged(0));
        }
        r.take(4)?;
        let pool_count = r.u16()?;
        let texts = texts(&mut r, pool_count)?;
        let pool_end = r.at;
        r.take(6)?;
        let interfaces = r.u16()?;
        r.take(usize::from(interfaces).saturating_mul(2))?;
        let fields = r.u16()?;
        for _ in 0..fields {
            member(&mut r)?;
        }
        let method_count = r.u16()?;
        Ok(Self { bytes, pool_count, pool_end, texts, methods: r.at, method_count })
    }

    pub(crate) fn text(&self, index: u16) -> Option<&'a [u8]> {
        self.texts.get(usize::from(index)).copied().flatten()
    }

    /// The code of the method with this name and descriptor.
    pub(crate) fn code(&self, name: &str, descriptor: &str) -> Result<Code, Refused> {
        let mut r = Reader::new(self.bytes, self.methods);
        for _ in 0..self.method_count {
            r.take(2)?;
            let wanted = self.text(r.u16()?) == Some(name.as_bytes());
            let wanted = self.text(r.u16()?) == Some(descriptor.as_bytes()) && wanted;
            let attributes = r.u16()?;
            for _ in 0..attributes {
                let is_code = self.text(r.u16()?) == Some(b"Code");
                let length_at = r.at;
                let length = r.u32()?;
                let mut body = r;
                r.take(length)?;
                if wanted && is_code {
                    body.take(4)?;
                    let code_length = body.u32()?;
                    let start = body.at;
                    body.take(code_length)?;
                    return Ok(Code { length_at, start, end: body.at });
                }
            }
        }
        Err(Refused::NoMethod)
    }
}

fn texts<'a>(r: &mut Reader<'a>, count: u16) -> Result<Vec<Option<&'a [u8]>>, Refused> {
    let mut texts = vec![None];
    while texts.len() < usize::from(count) {
        let at = r.at;
        let (skip, wide) = match r.u8()? {
            UTF8 => {
                let length = r.u16()?;
                texts.push(Some(r.take(usize::from(length))?));
                continue;
            }
            // Integer, Float, references, NameAndType, Dynamic, InvokeDynamic
            3 | 4 | 9..=12 | 17 | 18 => (4, false),
            // Long and Double take two indices.
            5 | 6 => (8, true),
            // Class, String, MethodType, Module, Package
            7 | 8 | 16 | 19 | 20 => (2, false),
            // MethodHandle
            15 => (3, false),
            _ => return Err(Refused::Damaged(at)),
        };
        r.take(skip)?;
        texts.push(None);
        if wide {
            texts.push(None);
        }
    }
    Ok(texts)
}

fn member(r: &mut Reader<'_>) -> Result<(), Refused> {
    r.take(6)?;
    let attributes = r.u16()?;
    for _ in 0..attributes {
        r.take(2)?;
        let length = r.u32()?;
        r.take(length)?;
    }
    Ok(())
}
