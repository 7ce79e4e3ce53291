//! What a program computes: every line at once, one after the other.

use std::collections::BTreeMap;

use super::names::{COLUMNS, Name, Operand, Span, View};
use super::program::{Deal, Order, Work};

/// Elements of a buffer or of a part; `None` where nothing has written one.
pub(crate) type Memory = Vec<Option<u32>>;

/// Why the library has to refuse what a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There are no such elements.
    NotThere,
    Uninitialised,
    LengthMismatch,
    /// Of two tiles.
    ShapeMismatch,
    /// Of a kernel.
    Requirement,
}

/// The elements `value`, `value + 1` and so on.
pub(crate) fn counting(value: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| value.wrapping_add(i)).collect()
}

impl Order {
    pub(crate) fn of<T>(self, mut things: Vec<T>) -> Vec<T> {
        match self {
            Order::AsDealt => {}
            Order::Reversed => things.reverse(),
            Order::Rotated if things.is_empty() => {}
            Order::Rotated => things.rotate_left(1),
        }
        things
    }
}

impl Deal {
    /// How many elements each part has.
    fn lengths(self, len: usize) -> Vec<usize> {
        match self {
            Deal::Parts(parts) => (0..parts).map(|part| (len + parts - 1 - part) / parts).collect(),
            Deal::Chunks(most) => {
                (0..len).step_by(most).map(|start| most.min(len - start)).collect()
            }
        }
    }
}

/// All the memory that lines name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    memory: BTreeMap<Name, Memory>,
    /// Elements of the buffers that parts are of, by the name of their first part.
    dealt: BTreeMap<Name, usize>,
    /// Whether both shared buffers are one.
    pub(crate) cloned: bool,
}

impl Model {
    pub(crate) fn has(&self, name: Name) -> bool {
        self.memory.contains_key(&name)
    }

    pub(crate) fn put(&mut self, name: Name, memory: Memory) {
        self.memory.insert(name, memory);
    }

    pub(crate) fn drop(&mut self, name: Name) {
        self.memory.remove(&name);
    }

    fn memory(&self, name: Name) -> &Memory {
        self.memory.get(&name).expect("it is there")
    }

    pub(crate) fn len(&self, of: Operand) -> Result<usize, Refusal> {
        Ok(of.at.elements(self.memory(of.of).len())?.indices.len())
    }

    pub(crate) fn read(&self, of: Operand) -> Result<Vec<u32>, Refusal> {
        let memory = self.memory(of.of);
        let elements = of.at.elements(memory.len())?.indices;
        let read: Option<_> = elements.into_iter().map(|index| memory[index]).collect();
        read.ok_or(Refusal::Uninitialised)
    }

    pub(crate) fn write(&mut self, to: Operand, elements: &[u32]) {
        let memory = self.memory.get_mut(&to.of).expect("it is there");
        let indices = to.at.elements(memory.len()).expect("they are there").indices;
        indices.iter().zip(elements).for_each(|(index, element)| memory[*index] = Some(*element));
    }

    /// What has been written: all of it, or in pieces as long as can be and by columns.
    pub(crate) fn written(&self, name: Name) -> Vec<View> {
        let memory = self.memory(name);
        if memory.iter().all(Option::is_some) {
            return vec![View::All];
        }
        let mut views = Vec::new();
        let mut at = 0;
        while at < memory.len() {
            let len = memory[at..].iter().take_while(|element| element.is_some()).count();
            views.extend((len > 0).then(|| View::Slice(Span::new(at, len))));
            at += len + 1;
        }
        let rows = Span::new(0, memory.len() / COLUMNS);
        let column = |column| View::Tile { rows, columns: Span::new(column, 1) };
        let is_written = |view: &View| {
            let elements = view.elements(memory.len());
            elements.is_ok_and(|elements| elements.indices.iter().all(|i| memory[*i].is_some()))
        };
        views.extend((0..COLUMNS).map(column).filter(is_written));
        views
    }

    /// What work writes, into its last operand; or why it cannot be done.
    pub(crate) fn outcome(&self, work: Work) -> Result<Vec<u32>, Refusal> {
        for operand in work.operands() {
            self.len(operand)?;
        }
        match work {
            Work::Fill { x, value } => Ok(vec![value; self.len(x)?]),
            Work::Increment { x } => {
                Ok(self.read(x)?.iter().map(|element| element.wrapping_add(1)).collect())
            }
            Work::CopyKernel { from, to } => match self.len(from)? == self.len(to)? {
                true => self.read(from),
                false => Err(Refusal::Requirement),
            },
            Work::Add { a, b, to } => {
                if self.len(a)? != self.len(to)? || self.len(b)? != self.len(to)? {
                    return Err(Refusal::Requirement);
                }
                let (a, b) = (self.read(a)?, self.read(b)?);
                Ok(a.iter().zip(b).map(|(a, b)| a.wrapping_add(b)).collect())
            }
            Work::SumRows { from, to } => {
                let memory = self.memory(from.of);
                let tile = from.at.elements(memory.len())?.tile;
                let [rows, columns] = tile.expect("a line has it sum tiles");
                if rows != self.len(to)? {
                    return Err(Refusal::Requirement);
                }
                let sum = |row: &[u32]| row.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x));
                Ok(self.read(from)?.chunks(columns).map(sum).collect())
            }
            Work::Copy { from, to, .. } => {
                let shape = |of: Operand| of.at.elements(self.memory(of.of).len());
                let (source, target) = (shape(from)?, shape(to)?);
                if source.tile.zip(target.tile).is_some_and(|(source, target)| source != target) {
                    return Err(Refusal::ShapeMismatch);
                }
                match source.indices.len() == target.indices.len() {
                    true => self.read(from),
                    false => Err(Refusal::LengthMismatch),
                }
            }
        }
    }

    /// Deals out memory as parts in the stead of those there are.
    pub(crate) fn deal(&mut self, whole: Name, memory: &[Option<u32>], deal: Deal) {
        let parts = whole.parts();
        parts.iter().for_each(|part| self.drop(*part));
        self.dealt.insert(parts[0], memory.len());
        let mut rest = memory;
        for (part, len) in parts.into_iter().zip(deal.lengths(memory.len())) {
            let (dealt, others) = rest.split_at(len);
            rest = others;
            self.put(part, dealt.to_vec());
        }
        assert!(rest.is_empty(), "more parts than names");
    }

    /// The memory of all parts, if they are all there.
    pub(crate) fn rejoined(&self, whole: Name) -> Option<Memory> {
        let parts = whole.parts();
        let memory = parts.iter().filter_map(|part| self.memory.get(part)).flatten();
        let memory: Memory = memory.copied().collect();
        (memory.len() == self.dealt[&parts[0]] && !memory.is_empty()).then_some(memory)
    }

    /// Exchanges the memory of a buffer for that of parts, which are dealt out of it.
    pub(crate) fn rejoin(&mut self, whole: Name, rejoined: Memory, deal: Deal) {
        let memory = self.memory.insert(whole, rejoined).expect("it is there");
        self.deal(whole, &memory, deal);
    }

    pub(crate) fn exchange(&mut self, x: Name, shared: Name) {
        let [one, other] = [x, shared].map(|name| self.memory(name).clone());
        self.put(x, other);
        self.put(shared, one);
    }

    pub(crate) fn clone_shared(&mut self, from: Name, to: Name) {
        self.put(to, self.memory(from).clone());
        self.cloned = true;
    }
}
