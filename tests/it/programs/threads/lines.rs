//! What threads share, and what one line of theirs does.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use headwater::{
    Completion, Device, DeviceBuffer, DevicePart, Error, HostBuffer, SharedBuffer, Stream,
};

use super::super::memory::copied_out;
use super::super::world::{Checked, Failed, Kinds};
use crate::common::{Random, wait};
use crate::kernels::{add_u32, copy_u32, increment};

/// Of each thread and task.
const LINES: usize = 40;
const LEN: usize = 8;
const PARTS: usize = 4;

/// Memory, and the element that it is full of.
struct Full<M> {
    memory: M,
    of: u32,
}

type Locked<M> = Mutex<Full<M>>;

/// Where several are locked, in this order: that of the fields, and within them ascending.
pub(super) struct World {
    device: Device,
    streams: Vec<Stream>,
    buffers: Vec<Locked<DeviceBuffer<u32>>>,
    /// Of one buffer. Empty only while they are exchanged, under all their locks.
    parts: Vec<Locked<Option<DevicePart<u32>>>>,
    shared: Locked<SharedBuffer<u32>>,
    pinned: Vec<Locked<HostBuffer<u32>>>,
    kinds: Mutex<Kinds>,
}

/// What a line leaves to be awaited when the locks are released.
enum Left {
    Nothing,
    Completion(Completion),
    Bytes(HostBuffer<u32>, u32),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(what: &str, elements: &[u32], of: u32) -> Checked {
    match elements.iter().all(|element| *element == of) {
        true => Ok(()),
        false => Err(Failed::Wrong(format!("{what} is {elements:?}, not full of {of}"))),
    }
}

/// Full of zeros.
fn zeros(device: &Device) -> Result<Full<DeviceBuffer<u32>>, Error> {
    Ok(Full { memory: device.zeros(LEN)?, of: 0 })
}

fn dealt(whole: Full<DeviceBuffer<u32>>) -> Result<Vec<Full<Option<DevicePart<u32>>>>, Error> {
    let parts = whole.memory.into_parts(PARTS).map_err(|refused| refused.error)?.into_iter();
    Ok(parts.map(|part| Full { memory: Some(part), of: whole.of }).collect())
}

/// What it is while all parts are there.
fn here<T>(part: &mut Option<T>) -> &mut T {
    part.as_mut().expect("the parts are there when they are not locked")
}

/// Does this with each of them at once, each on a thread of its own.
fn on_threads<V: Send>(
    views: impl Iterator<Item = V>,
    does: impl Fn(V) -> Result<Completion, Error> + Sync,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let does = &does;
        let threads: Vec<_> = views.map(|view| scope.spawn(move || does(view).map(drop))).collect();
        let mut ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.try_for_each(|ended| ended)
    })
}

impl World {
    pub(super) fn new(device: &Device) -> Result<World, Error> {
        let buffers = (0..4).map(|_| zeros(device).map(Mutex::new));
        let parts = dealt(zeros(device)?)?.into_iter().map(Mutex::new).collect();
        let shared = Full { memory: zeros(device)?.memory.into_shared(), of: 0 };
        let pinned = (0..2).map(|_| {
            let mut memory = device.alloc_host(LEN)?;
            memory.try_write()?.fill(0);
            Ok(Mutex::new(Full { memory, of: 0 }))
        });
        Ok(World {
            streams: (0..3).map(|_| device.stream()).collect(),
            buffers: buffers.collect::<Result<_, Error>>()?,
            parts,
            shared: Mutex::new(shared),
            pinned: pinned.collect::<Result<_, Error>>()?,
            kinds: Mutex::default(),
            device: device.clone(),
        })
    }

    pub(super) fn kinds(&self) -> Kinds {
        *lock(&self.kinds)
    }

    /// One line at random, on one of the streams or on that of whoever calls.
    fn line(&self, random: &mut Random) -> Checked<Left> {
        let line = |random: &mut Random| match random.below(8) {
            0..=3 => self.line_of_wholes(random),
            4 => self.line_of_pieces(random),
            5 => self.line_of_shared(random),
            _ => self.line_of_parts(random),
        };
        match self.streams.get(random.below(self.streams.len() + 1)) {
            Some(stream) => stream.in_scope(|| line(random)),
            None => line(random),
        }
    }

    fn line_of_wholes(&self, random: &mut Random) -> Checked<Left> {
        let mut at = random.two_below(self.buffers.len());
        at.sort_unstable();
        let (mut x, mut y) = (lock(&self.buffers[at[0]]), lock(&self.buffers[at[1]]));
        let mut p = lock(&self.pinned[random.below(self.pinned.len())]);
        let completion = match random.below(12) {
            0 => {
                x.of = random.next() as u32;
                let of = x.of;
                x.memory.fill(of)?
            }
            1 | 2 => {
                x.of = x.of.wrapping_add(1);
                increment(&mut x.memory)?
            }
            3 => {
                y.of = x.of;
                copy_u32(&x.memory, &mut y.memory)?
            }
            4 => {
                x.of = y.of;
                x.memory.copy_from(&y.memory)?
            }
            5 => {
                y.of = x.of.wrapping_add(x.of);
                add_u32(&x.memory, &x.memory, &mut y.memory)?
            }
            6 => {
                p.of = x.of;
                x.memory.copy_to(&mut p.memory)?
            }
            7 => {
                x.of = p.of;
                x.memory.copy_from(&p.memory)?
            }
            8..=10 => {
                *x = zeros(&self.device)?;
                return Ok(Left::Nothing);
            }
            _ if random.below(3) > 0 => {
                let bytes = copied_out(&self.device, LEN, |to| x.memory.copy_to(to))?;
                return Ok(Left::Bytes(bytes, x.of));
            }
            _ => {
                p.of = random.next() as u32;
                let of = p.of;
                p.memory.blocking_write()?.fill(of);
                check("what was written", &p.memory.blocking_read()?, of)?;
                return Ok(Left::Nothing);
            }
        };
        left(completion, random)
    }

    /// Threads, each with a piece of one buffer.
    fn line_of_pieces(&self, random: &mut Random) -> Checked<Left> {
        let mut x = lock(&self.buffers[random.below(self.buffers.len())]);
        if random.below(2) == 0 {
            x.of = x.of.wrapping_add(1);
            on_threads(x.memory.chunks_mut(LEN / 2)?, increment)?;
            lock(&self.kinds).of_slices += 2;
        } else {
            let of = random.next() as u32;
            x.of = of;
            let mut matrix = x.memory.as_matrix_mut(LEN / 2)?;
            on_threads(matrix.column_chunks_mut(LEN / 4)?, |mut columns| columns.fill(of))?;
            lock(&self.kinds).of_tiles += 2;
        }
        Ok(Left::Nothing)
    }

    /// Nobody's lock is held while shared memory is read; it is exchanged for that of a buffer at times.
    fn line_of_shared(&self, random: &mut Random) -> Checked<Left> {
        let mut x = lock(&self.buffers[random.below(self.buffers.len())]);
        let mut shared = lock(&self.shared);
        if random.below(4) == 0 {
            let frozen = mem::replace(&mut *x, zeros(&self.device)?);
            *shared = Full { memory: frozen.memory.into_shared(), of: frozen.of };
            return Ok(Left::Nothing);
        }
        let (handle, of) = (shared.memory.clone(), shared.of);
        drop(shared);
        lock(&self.kinds).of_shared += 1;
        if random.below(3) == 0 {
            let bytes = copied_out(&self.device, LEN, |to| handle.copy_to(to))?;
            return Ok(Left::Bytes(bytes, of));
        }
        x.of = of;
        left(copy_u32(&handle, &mut x.memory)?, random)
    }

    fn line_of_parts(&self, random: &mut Random) -> Checked<Left> {
        lock(&self.kinds).of_parts += 1;
        if random.below(6) == 0 {
            return self.exchange(random);
        }
        let mut at = random.two_below(PARTS);
        at.sort_unstable();
        let mut x = lock(&self.parts[at[0]]);
        let completion = match random.below(5) {
            0 => {
                x.of = random.next() as u32;
                let of = x.of;
                here(&mut x.memory).fill(of)?
            }
            1 | 2 => {
                x.of = x.of.wrapping_add(1);
                increment(here(&mut x.memory))?
            }
            3 => {
                let mut y = lock(&self.parts[at[1]]);
                y.of = x.of;
                copy_u32(&*here(&mut x.memory), here(&mut y.memory))?
            }
            _ => {
                let part = here(&mut x.memory);
                let bytes = copied_out(&self.device, part.len(), |to| part.copy_to(to))?;
                return Ok(Left::Bytes(bytes, x.of));
            }
        };
        left(completion, random)
    }

    /// The parts become a buffer again, and a buffer becomes parts.
    fn exchange(&self, random: &mut Random) -> Checked<Left> {
        let mut x = lock(&self.buffers[random.below(self.buffers.len())]);
        let mut parts: Vec<_> = self.parts.iter().map(lock).collect();
        let of = random.next() as u32;
        let taken = parts.iter_mut().rev().filter_map(|part| part.memory.take());
        let rejoined = DeviceBuffer::rejoin(taken).map_err(|refused| refused.error)?;
        let whole = mem::replace(&mut *x, Full { memory: rejoined, of });
        for (place, part) in parts.iter_mut().zip(dealt(whole)?) {
            **place = part;
        }
        drop(parts);
        left(x.memory.fill(of)?, random)
    }

    pub(super) async fn lines(&self, seed: u64) -> Checked {
        let mut random = Random::new(seed);
        for _ in 0..LINES {
            let left = self.line(&mut random)?;
            match left {
                Left::Nothing => {}
                Left::Completion(completion) => completion.await?,
                Left::Bytes(bytes, of) => {
                    check("what was read back", &bytes.read().await?, of)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn read_all(&self) -> Checked {
        for buffer in &self.buffers {
            let full = lock(buffer);
            check("a buffer", &wait(full.memory.to_vec())?, full.of)?;
        }
        for part in &self.parts {
            let mut full = lock(part);
            let of = full.of;
            check("a part", &wait(here(&mut full.memory).to_vec())?, of)?;
        }
        for pinned in &self.pinned {
            let full = lock(pinned);
            check("pinned memory", &full.memory.blocking_read()?, full.of)?;
        }
        let full = lock(&self.shared);
        check("shared memory", &wait(full.memory.to_vec())?, full.of)
    }
}

/// What becomes of a completion.
fn left(completion: Completion, random: &mut Random) -> Checked<Left> {
    Ok(match random.below(4) {
        0 => Left::Completion(completion),
        1 => {
            let _ = completion.is_finished()?;
            Left::Nothing
        }
        _ => Left::Nothing,
    })
}
