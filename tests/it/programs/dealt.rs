//! Lines by which memory changes hands: parts, which are owned, and what is shared.

use std::cell::RefCell;

use headwater::{DeviceBuffer, Error, HostBuffer, NotDivided, NotRejoined};

use super::memory::Held;
use super::names::{LENGTHS, Name, Operand, View};
use super::program::{Deal, Order};
use super::world::{Checked, World, wrong};
use crate::kernels::increment;

/// Whatever kinds of parts there are.
fn dealt(held: Held, deal: Deal) -> Result<Vec<Held>, Error> {
    match (held, deal) {
        (Held::Buffer(buffer), Deal::Parts(parts)) => each(buffer.into_parts(parts), Held::Part),
        (Held::Buffer(buffer), Deal::Chunks(len)) => each(buffer.into_chunks(len), Held::Part),
        (Held::Pinned(buffer), Deal::Parts(parts)) => {
            each(buffer.into_parts(parts), Held::PinnedPart)
        }
        (Held::Pinned(buffer), Deal::Chunks(len)) => {
            each(buffer.into_chunks(len), Held::PinnedPart)
        }
        _ => unreachable!("no line deals out other than buffers"),
    }
}

fn each<B, P>(
    dealt: Result<Vec<P>, NotDivided<B>>,
    held: fn(P) -> Held,
) -> Result<Vec<Held>, Error> {
    let parts = dealt.map_err(|refused| refused.error)?;
    Ok(parts.into_iter().map(held).collect())
}

/// The range of a part of a buffer of twice as many elements is that of no part of a line.
const LONGEST: usize = LENGTHS[0];

/// What is to become of parts that are not rejoined.
type NotJoined = (Vec<Held>, Error);

fn rejoined(parts: Vec<Held>) -> Result<Held, NotJoined> {
    let (mut device, mut pinned) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Held::Part(part) => device.push(part),
            Held::PinnedPart(part) => pinned.push(part),
            _ => unreachable!("only parts are rejoined"),
        }
    }
    if pinned.is_empty() {
        let refused =
            |NotRejoined { parts, error }| (parts.into_iter().map(Held::Part).collect(), error);
        return DeviceBuffer::rejoin(device).map(Held::Buffer).map_err(refused);
    }
    let refused =
        |NotRejoined { parts, error }| (parts.into_iter().map(Held::PinnedPart).collect(), error);
    HostBuffer::rejoin(pinned).map(Held::Pinned).map_err(refused)
}

impl World<'_> {
    /// Deals out a new buffer, in the place of the parts there are.
    pub(super) fn deal(&mut self, x: Name, len: usize, zeroed: bool, deal: Deal) -> Checked {
        for part in x.parts() {
            drop(self.take(part));
        }
        let (held, memory) = self.new_memory(x, len, zeroed)?;
        self.give_parts(x, dealt(held, deal)?);
        self.model.deal(x, &memory, deal);
        Ok(())
    }

    fn give_parts(&mut self, x: Name, parts: Vec<Held>) {
        for (name, part) in x.parts().into_iter().zip(parts) {
            self.give(name, part);
        }
    }

    pub(super) fn rejoin(&mut self, x: Name, order: Order, stranger: bool, deal: Deal) -> Checked {
        let names: Vec<_> = x.parts().into_iter().filter(|part| self.model.has(*part)).collect();
        let mut parts: Vec<_> = names.iter().map(|name| self.taken(*name)).collect();
        let is_of = |part: &Held| match part {
            Held::Part(part) => part.range(),
            Held::PinnedPart(part) => part.range(),
            _ => unreachable!("it is a part"),
        };
        let ranges: Vec<_> = parts.iter().map(is_of).collect();
        if stranger {
            let (other, _) = self.new_memory(x, 2 * LONGEST, false)?;
            parts.extend(dealt(other, Deal::Parts(2))?.pop());
        }
        let given = parts.len();
        let model = self.model.rejoined(x).filter(|_| !stranger);
        match (rejoined(order.of(parts)), model) {
            (Ok(buffer), Some(memory)) => {
                let old = self.taken(x);
                self.give(x, buffer);
                self.give_parts(x, dealt(old, deal)?);
                self.model.rejoin(x, memory, deal);
                Ok(())
            }
            (Err((mut parts, error)), None) => {
                let as_it_is = match error {
                    Error::PartsOfSeveral { .. } => stranger && !names.is_empty(),
                    Error::PartsMissing { .. } => true,
                    Error::NoParts => given == 0,
                    _ => false,
                };
                if !as_it_is || parts.len() != given {
                    return wrong(format!("{given} parts, {} given back: {error}", parts.len()));
                }
                for (name, range) in names.into_iter().zip(ranges) {
                    let Some(at) = parts.iter().position(|part| is_of(part) == range) else {
                        return wrong(format!("{name} is not given back: {error}"));
                    };
                    self.give(name, parts.swap_remove(at));
                }
                Ok(())
            }
            (Ok(_), None) => wrong("parts were rejoined that are not one buffer".to_owned()),
            (Err((_, error)), Some(_)) => Err(error.into()),
        }
    }

    /// A device buffer and a shared one change places, if that is the only handle.
    pub(super) fn share(&mut self, x: Name, shared: Name) -> Checked {
        let Held::Shared(held) = self.taken(shared) else { unreachable!("it is shared") };
        match (held.try_into_buffer(), self.model.cloned) {
            (Ok(was_shared), false) => {
                let Held::Buffer(buffer) = self.taken(x) else { unreachable!("it is a buffer") };
                self.give(shared, Held::Shared(buffer.into_shared()));
                self.give(x, Held::Buffer(was_shared));
                self.model.exchange(x, shared);
                Ok(())
            }
            (Err(handle), true) => {
                self.give(shared, Held::Shared(handle));
                Ok(())
            }
            (Ok(_), true) => wrong(format!("{shared} is a buffer while it has another handle")),
            (Err(_), false) => wrong(format!("{shared}, which has no other handle, is none")),
        }
    }

    pub(super) fn clone_shared(&mut self) -> Checked {
        let [from, to] = [Name::Shared(0), Name::Shared(1)];
        let Held::Shared(handle) = self.get(from) else { unreachable!("it is shared") };
        let clone = Held::Shared(handle.clone());
        self.give(to, clone);
        self.model.clone_shared(from, to);
        Ok(())
    }

    pub(super) fn replace_shared(&mut self, shared: Name, len: usize, zeroed: bool) -> Checked {
        let (held, memory) = self.new_memory(shared, len, zeroed)?;
        let Held::Buffer(buffer) = held else { unreachable!("it is a buffer") };
        self.give(shared, Held::Shared(buffer.into_shared()));
        self.model.put(shared, memory);
        self.model.cloned = false;
        Ok(())
    }
}

/// A part is someone's own while its work is awaited.
pub(super) async fn own(world: &RefCell<World<'_>>, part: Name, value: u32) -> Checked {
    let Some(mut held) = world.borrow_mut().take(part) else { return Ok(()) };
    let filled = held.target(View::All, |target| target.fill(value));
    let filled = world.borrow().unless_refused(filled)?;
    let mut element = None;
    if let Some(filled) = filled {
        filled.await?;
        let incremented = held.target(View::All, |part| increment(part.in_one_piece()));
        let more = world.borrow().unless_refused(incremented)?.is_some();
        element = Some(value.wrapping_add(u32::from(more)));
    }
    let mut world = world.borrow_mut();
    world.give(part, held);
    if let Some(element) = element {
        let all = Operand::all(part);
        let len = world.model.len(all).expect("all of it is there");
        world.model.write(all, &vec![element; len]);
        world.came.kinds.of_parts += 1;
    }
    Ok(())
}
