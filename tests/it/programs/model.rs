//! What a program computes: every line at once, one after the other.

use super::program::{BUFFERS, Buffer, PINNED, Pinned, Work};

/// A buffer's elements; `None` where nothing has written them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) len: usize,
    pub(crate) elements: Option<Vec<u32>>,
}

impl Memory {
    pub(crate) fn unwritten(len: usize) -> Self {
        Memory { len, elements: None }
    }

    pub(crate) fn of(elements: Vec<u32>) -> Self {
        Memory { len: elements.len(), elements: Some(elements) }
    }

    fn read(&self) -> Result<&Vec<u32>, Refusal> {
        self.elements.as_ref().ok_or(Refusal::Uninitialised)
    }
}

/// Why the library has to refuse what a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Uninitialised,
    LengthMismatch,
    /// Of a kernel.
    Requirement,
}

/// What work writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Device(usize),
    Pinned(usize),
}

/// The elements `value`, `value + 1` and so on.
pub(crate) fn counting(value: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| value.wrapping_add(i)).collect()
}

/// All the memory that lines name.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) device: [Memory; BUFFERS],
    pub(crate) pinned: [Memory; PINNED],
}

impl Model {
    pub(crate) fn new(len: usize) -> Self {
        Model {
            device: std::array::from_fn(|_| Memory::unwritten(len)),
            pinned: std::array::from_fn(|_| Memory::unwritten(len)),
        }
    }

    /// What work writes and where; or why it cannot be done.
    pub(crate) fn outcome(&self, work: Work) -> Result<(Target, Vec<u32>), Refusal> {
        let device = |Buffer(x): Buffer| &self.device[x];
        let pinned = |Pinned(p): Pinned| &self.pinned[p];
        let copy = |from: &Memory, to: &Memory, refusal| match from.len == to.len {
            true => from.read().cloned(),
            false => Err(refusal),
        };
        let mismatch = Refusal::LengthMismatch;
        let (target, elements) = match work {
            Work::Fill { x, value } => (Target::Device(x.0), vec![value; device(x).len]),
            Work::Increment { x } => {
                let incremented = device(x).read()?.iter().map(|x| x.wrapping_add(1));
                (Target::Device(x.0), incremented.collect())
            }
            Work::CopyKernel { from, to } => {
                let copied = copy(device(from), device(to), Refusal::Requirement)?;
                (Target::Device(to.0), copied)
            }
            Work::Add { a, b, to } => {
                if [a, b].iter().any(|x| device(*x).len != device(to).len) {
                    return Err(Refusal::Requirement);
                }
                let pairs = device(a).read()?.iter().zip(device(b).read()?);
                (Target::Device(to.0), pairs.map(|(a, b)| a.wrapping_add(*b)).collect())
            }
            Work::Copy { from, to, .. } => {
                (Target::Device(to.0), copy(device(from), device(to), mismatch)?)
            }
            Work::Up { from, to, .. } => {
                (Target::Device(to.0), copy(pinned(from), device(to), mismatch)?)
            }
            Work::Down { from, to, .. } => {
                (Target::Pinned(to.0), copy(device(from), pinned(to), mismatch)?)
            }
        };
        Ok((target, elements))
    }

    pub(crate) fn write(&mut self, target: Target, elements: Vec<u32>) {
        let memory = match target {
            Target::Device(x) => &mut self.device[x],
            Target::Pinned(p) => &mut self.pinned[p],
        };
        *memory = Memory::of(elements);
    }
}
