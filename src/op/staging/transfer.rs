//! A transfer that helper threads make, piece by piece.
//!
//! Whoever has a turn looks under the lock of the state what is next (`step`), and does it with
//! nothing held: a piece is filled, enqueued or drained, a chunk is asked for, or the oldest copy is. Several
//! threads are at one transfer at a time. A transfer that is not over stands in line, or somebody is at
//! it, or it is woken by what it waits for: by the oldest copy in flight, by room in the queue, by what it
//! comes after, or by a chunk that is free.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::bytes::{Filling, OwnedBytes};
use super::progress::Counts;
use super::submit::{Direction, InFlight, Opened, Piece, Refused};
use crate::device::{InLine, PinnedBlock, Staged, Stream};
use crate::error::{Error, Result};
use crate::foreign::contained;
use crate::reactor::Completion;
use crate::sync::Mutex;

/// The ordinary memory of a transfer. Held by it, and by each thread that is at a piece.
pub(super) enum Host {
    Source(OwnedBytes),
    Target(Filling),
}

pub(super) struct Transfer {
    opened: Opened,
    in_line: InLine,
    counts: Arc<Counts>,
    /// Held for bookkeeping only: never over a copy, a driver call or a waker.
    state: Mutex<State>,
    outcome: Arc<Outcome>,
}

/// How a transfer ended, for the future that waits for it: all that the future holds of it, so one that is
/// forgotten keeps no memory and no device.
#[derive(Default)]
pub(super) struct Outcome {
    /// Leaf lock.
    told: Mutex<Told>,
}

struct State {
    /// Lent for the length of the transfer. `None` once it is over.
    stream: Option<Stream>,
    /// `None` once it is over.
    host: Option<Arc<Host>>,
    /// What the access had to come after is done. Before that no chunk is taken: copies that have one
    /// wait for nothing but copies.
    started: bool,
    /// Bytes that were claimed, each once: the first of those that were not.
    next: usize,
    /// Bytes whose copies are on the stream.
    enqueued: usize,
    /// Pieces that the queue had no room for.
    refused: VecDeque<Piece>,
    /// As when the queue was last refused; cleared when something has ended since.
    full: bool,
    /// Ascending by ticket.
    in_flight: VecDeque<InFlight>,
    /// Pieces that a thread is at.
    busy: usize,
    waiting: Waiting,
    /// No piece is claimed any more: it failed, or nobody wants it.
    stopped: bool,
}

/// What would wake the transfer.
enum Waiting {
    Nothing,
    /// A thread is about to say so. `true`: another one has come to wait meanwhile, and left that to it.
    Asking(bool),
    For(u64, Completion),
}

#[derive(Default)]
struct Told {
    /// Taken when told.
    ended: Option<Ended>,
    waker: Option<Waker>,
}

enum Ended {
    Done(Option<Filling>),
    Failed(Error),
    /// By a race that is to panic.
    Panicked(Box<dyn Any + Send>),
}

/// What is next.
enum Step {
    Fill(Arc<Host>, usize, PinnedBlock),
    Submit(Piece),
    Drain(Arc<Host>, InFlight),
    /// Asks for a chunk: of the copy's own if it is done by now.
    Chunk(Option<u64>),
    Ask(u64),
    AskForRoom,
    /// It is over: what is left of it, and whether it was stopped.
    Over(Option<Stream>, Option<Arc<Host>>, bool),
    /// Others see to it.
    Nothing,
}

impl Transfer {
    /// Begins a transfer, in which the device's threads do all the work. It ends with an error where there is none,
    /// and none can be started.
    pub(super) fn begin(
        opened: Opened,
        stream: Stream,
        host: Host,
        counts: Arc<Counts>,
    ) -> Arc<Self> {
        let state = State {
            stream: Some(stream),
            host: Some(Arc::new(host)),
            started: false,
            next: 0,
            enqueued: 0,
            refused: VecDeque::new(),
            full: false,
            in_flight: VecDeque::new(),
            busy: 0,
            waiting: Waiting::Nothing,
            stopped: false,
        };
        let transfer = Arc::new(Transfer {
            opened,
            in_line: InLine::default(),
            counts,
            state: Mutex::new(state),
            outcome: Arc::default(),
        });
        let core = transfer.opened.core();
        core.staging().begin();
        core.staging().line_up(core, transfer.clone());
        transfer
    }

    /// Nobody wants it any more: when this returns no copy is enqueued that is not yet, and who uses the
    /// memory next comes after those that are.
    pub(super) fn abandon(self: &Arc<Self>) {
        self.opened.end(true);
        self.state.lock().stopped = true;
        self.line_up();
    }

    pub(super) fn outcome(&self) -> &Arc<Outcome> {
        &self.outcome
    }

    fn line_up(self: &Arc<Self>) {
        let core = self.opened.core();
        core.staging().line_up(core, self.clone());
    }

    /// No more pieces; those that are in flight are seen to end.
    fn fail(&self, ended: Ended) {
        self.opened.end(true);
        self.state.lock().stopped = true;
        self.outcome.tell(ended);
    }

    /// Does one piece, or finds what to wait for.
    fn work(self: &Arc<Self>, mut chunk: Option<PinnedBlock>) {
        let (core, lane) = (self.opened.core(), self.opened.lane());
        let staging = core.staging();
        let mut asks = true;
        loop {
            let mut free = Vec::new();
            let step = self.step(&mut chunk, &mut free, asks);
            free.into_iter().for_each(|chunk| staging.release(core, chunk));
            match step {
                Step::Fill(host, at, mut chunk) => {
                    // Another thread can be at the next piece meanwhile.
                    self.line_up();
                    let bytes = self.opened.bytes().min(at + staging.chunk()) - at;
                    if let Host::Source(source) = &*host {
                        self.opened.fill(&mut chunk, &source.as_bytes()[at..at + bytes]);
                    }
                    drop(host);
                    self.submit(Piece { chunk, at, bytes });
                    self.line_up();
                    break;
                }
                Step::Submit(piece) => self.submit(piece),
                Step::Drain(host, landed) => {
                    self.line_up();
                    let bytes = landed.bytes();
                    let drained = match &*host {
                        Host::Target(into) => landed.drained(&self.opened, into),
                        Host::Source(_) => landed.finished(),
                    };
                    drop(host);
                    self.counts.add(bytes);
                    let mut state = self.state.lock();
                    state.busy -= 1;
                    drop(state);
                    match drained {
                        Ok(chunk) => staging.release(core, chunk),
                        // Not as it was finished a moment ago.
                        Err(in_flight) => self.lose(in_flight),
                    }
                    self.line_up();
                    break;
                }
                Step::Chunk(oldest) => {
                    chunk = staging.take_free();
                    if chunk.is_some() {
                        continue;
                    }
                    if oldest.is_some_and(|oldest| lane.probe(oldest)) {
                        // To the host it is drained first.
                        asks = self.opened.direction() == Direction::Up;
                        continue;
                    }
                    match staging.take(core, &(self.clone() as Arc<dyn Staged>)) {
                        Ok(Some(made)) => chunk = Some(made),
                        Ok(None) => asks = false,
                        Err(error) => self.fail(Ended::Failed(error)),
                    }
                }
                Step::Ask(seq) => {
                    if !self.ask(seq, || Some(lane.completion(seq))) {
                        break;
                    }
                }
                Step::AskForRoom => {
                    if !self.ask(0, || lane.room()) {
                        break;
                    }
                }
                Step::Over(stream, host, stopped) => {
                    self.end(stream, host, stopped);
                    break;
                }
                Step::Nothing => break,
            }
        }
        if let Some(chunk) = chunk {
            staging.release(core, chunk);
        }
    }

    /// What is next. `chunk` is one for the next piece, and `asks` says whether to ask for one; chunks that
    /// are free go to `free`.
    fn step(
        &self,
        chunk: &mut Option<PinnedBlock>,
        free: &mut Vec<PinnedBlock>,
        asks: bool,
    ) -> Step {
        let mut state = self.state.lock();
        let State { started, stopped, full, .. } = *state;
        let Some(host) = state.host.clone() else { return Step::Nothing };
        if !started && !stopped {
            if !self.opened.lane().is_known_finished(self.opened.start()) {
                return Step::Ask(self.opened.start());
            }
            state.started = true;
        }
        let drains = self.opened.direction() == Direction::Down && !stopped;
        if !drains {
            while let Some(landed) = state.landed() {
                let bytes = landed.bytes();
                match landed.finished() {
                    Ok(chunk) => free.push(chunk),
                    Err(in_flight) => self.lose(in_flight),
                }
                if !stopped {
                    self.counts.add(bytes);
                }
            }
        }
        if stopped {
            free.extend(state.refused.drain(..).map(|piece| piece.chunk));
        } else if !full {
            if let Some(piece) = state.refused.pop_front() {
                state.busy += 1;
                return Step::Submit(piece);
            }
            if state.next < self.opened.bytes() {
                if let Some(chunk) = chunk.take() {
                    return state.claim(host, chunk, &self.opened);
                }
                if asks {
                    return Step::Chunk(state.in_flight.front().map(InFlight::seq));
                }
            }
        }
        if drains && let Some(landed) = state.landed() {
            state.busy += 1;
            return Step::Drain(host, landed);
        }
        let all = stopped || state.enqueued == self.opened.bytes();
        match state.in_flight.front() {
            Some(oldest) => Step::Ask(oldest.seq()),
            None if state.busy > 0 => Step::Nothing,
            None if all => {
                drop(host);
                Step::Over(state.stream.take(), state.host.take(), stopped)
            }
            None if full => Step::AskForRoom,
            None => Step::Nothing, // starved
        }
    }

    fn submit(&self, piece: Piece) {
        let bytes = piece.bytes;
        let submitted = self.opened.submit(piece);
        let mut state = self.state.lock();
        state.busy -= 1;
        let (piece, refused) = match submitted {
            Ok(in_flight) => {
                let after = state.in_flight.iter().rposition(|f| f.seq() < in_flight.seq());
                state.in_flight.insert(after.map_or(0, |after| after + 1), in_flight);
                state.enqueued += bytes;
                let all = state.enqueued == self.opened.bytes();
                drop(state);
                if all {
                    self.opened.end(false);
                }
                return;
            }
            Err(refused) => refused,
        };
        if let Refused::Full(_) = refused {
            state.full = true;
            state.refused.push_front(piece);
            return;
        }
        if let Refused::For(_) = refused {
            state.stopped = true;
        }
        drop(state);
        let core = self.opened.core();
        core.staging().release(core, piece.chunk);
        if let Refused::For(error) = refused {
            self.fail(Ended::Failed(error));
        }
    }

    /// Asks for the end of something, and sees to it that the transfer is woken by it. True where it has
    /// ended, or something else may be next. `awaited` is `None` where nothing is to be waited for.
    fn ask(self: &Arc<Self>, seq: u64, awaited: impl FnOnce() -> Option<Completion>) -> bool {
        let mut state = self.state.lock();
        let before = match std::mem::replace(&mut state.waiting, Waiting::Asking(false)) {
            Waiting::Asking(_) => {
                state.waiting = Waiting::Asking(true);
                return false;
            }
            Waiting::For(known, completion) => Some((known, completion)),
            Waiting::Nothing => None,
        };
        drop(state);
        let known = before.and_then(|(known, completion)| (known == seq).then_some(completion));
        let waker = Waker::from(self.clone());
        let mut awaited = known.or_else(awaited);
        let ended = match &mut awaited {
            Some(awaited) => Pin::new(awaited).poll(&mut Context::from_waker(&waker)),
            None => Poll::Ready(Ok(())),
        };
        let mut state = self.state.lock();
        state.full &= ended.is_pending();
        let others_came = matches!(state.waiting, Waiting::Asking(true));
        state.waiting = match awaited {
            Some(awaited) if ended.is_pending() => Waiting::For(seq, awaited),
            _ => Waiting::Nothing,
        };
        let lost = match ended {
            Poll::Ready(Err(error)) => {
                state.stopped = true;
                Some((std::mem::take(&mut state.in_flight), error))
            }
            Poll::Ready(Ok(())) => return true,
            // For them something else may be next.
            Poll::Pending => return others_came,
        };
        drop(state);
        if let Some((in_flight, error)) = lost {
            in_flight.into_iter().for_each(|in_flight| self.lose(in_flight));
            self.fail(Ended::Failed(error));
        }
        true
    }

    /// Nobody can say when the copy is done: its chunk is none any more.
    fn lose(&self, in_flight: InFlight) {
        let core = self.opened.core();
        core.staging().forget_chunk(core);
        in_flight.retire(core);
    }

    /// Nothing of it is left to be done.
    fn end(&self, stream: Option<Stream>, host: Option<Arc<Host>>, stopped: bool) {
        let core = self.opened.core();
        // The owner of what was uploaded is foreign.
        let mut filled = None;
        contained(|| {
            if let Some(Host::Target(filling)) = host.and_then(Arc::into_inner) {
                filled = Some(filling);
            }
        });
        // Whoever enqueued the last copy may not have come to it yet; who is told finds the memory free.
        self.opened.end(stopped);
        drop(stream);
        core.staging().end(core);
        // Else whoever stopped it tells why, unless nobody wants to know.
        if !stopped {
            self.outcome.tell(Ended::Done(filled));
        }
    }
}

impl Outcome {
    fn tell(&self, ended: Ended) {
        let mut told = self.told.lock();
        // The first one counts.
        told.ended.get_or_insert(ended);
        let waker = told.waker.take();
        drop(told);
        if let Some(waker) = waker {
            contained(|| waker.wake());
        }
    }

    /// Of a transfer to the host: what was filled.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Filling>>> {
        let waker = cx.waker().clone();
        let mut told = self.told.lock();
        let Some(ended) = told.ended.take() else {
            let replaced = told.waker.replace(waker);
            drop(told);
            contained(|| drop(replaced));
            return Poll::Pending;
        };
        drop(told);
        match ended {
            Ended::Done(filled) => Poll::Ready(Ok(filled)),
            Ended::Failed(error) => Poll::Ready(Err(error)),
            Ended::Panicked(payload) => resume_unwind(payload),
        }
    }
}

impl State {
    /// The oldest copy in flight, taken out, if it is known to be finished.
    fn landed(&mut self) -> Option<InFlight> {
        if self.in_flight.front()?.is_finished() { self.in_flight.pop_front() } else { None }
    }

    /// The next piece, for whoever has a chunk for it.
    fn claim(&mut self, host: Arc<Host>, chunk: PinnedBlock, opened: &Opened) -> Step {
        let at = self.next;
        let bytes = opened.core().staging().chunk().min(opened.bytes() - at);
        self.next += bytes;
        self.busy += 1;
        match opened.direction() {
            Direction::Up => Step::Fill(host, at, chunk),
            Direction::Down => Step::Submit(Piece { chunk, at, bytes }),
        }
    }
}

impl Staged for Transfer {
    fn turn(self: Arc<Self>, chunk: Option<PinnedBlock>) {
        self.work(chunk);
        let core = self.opened.core();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| core.raise_race())) {
            self.fail(Ended::Panicked(payload));
            self.line_up();
        }
    }

    /// Nothing of it is in flight: with a thread that saw to that, there would be one.
    fn without_a_thread(self: Arc<Self>, error: Arc<io::Error>) {
        self.fail(Ended::Failed(Error::Thread(error)));
        let mut state = self.state.lock();
        let (stream, host) = (state.stream.take(), state.host.take());
        drop(state);
        if host.is_some() {
            self.end(stream, host, true);
        }
    }

    fn in_line(&self) -> &InLine {
        &self.in_line
    }
}

/// What it waits for has ended.
impl Wake for Transfer {
    fn wake(self: Arc<Self>) {
        self.line_up();
    }
}
