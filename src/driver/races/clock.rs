//! How far each stream is known to be ordered before something.

/// For each stream a number: its operations up to that one come before. Only streams of which more
/// is known than the host knows need an entry, so a clock is as long as there are streams at work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<(u32, u64)>);

impl Clock {
    /// How far stream `index` comes before; 0: not at all.
    pub(super) fn of(&self, index: u32) -> u64 {
        match self.0.binary_search_by_key(&index, |entry| entry.0) {
            Ok(at) => self.0[at].1,
            Err(_) => 0,
        }
    }

    /// The operations of stream `index` up to `number` come before, too.
    pub(super) fn raise(&mut self, index: u32, number: u64) {
        match self.0.binary_search_by_key(&index, |entry| entry.0) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(number),
            Err(at) => self.0.insert(at, (index, number)),
        }
    }

    /// What comes before `other` comes before, too.
    pub(super) fn join(&mut self, other: &Clock) {
        for &(index, number) in &other.0 {
            self.raise(index, number);
        }
    }

    /// For how many streams there is a number.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Lets go of what `host` knows: that comes before everything that is still to be enqueued.
    pub(super) fn forget_known(&mut self, host: &Host) {
        self.0.retain(|&(index, number)| !host.knows(index, number));
    }
}

/// What the host knows to be finished.
///
/// One for all threads: what one thread saw finished *is* finished when another enqueues, and how
/// threads tell each other is not the seam's to see.
#[derive(Debug, Default)]
pub(super) struct Host(Vec<u64>);

impl Host {
    /// Of a stream without any operation it knows all.
    pub(super) fn knows(&self, index: u32, number: u64) -> bool {
        number == 0 || self.0.get(index as usize).is_some_and(|&known| known >= number)
    }

    /// True where that was news.
    pub(super) fn learn(&mut self, clock: &Clock) -> bool {
        let mut news = false;
        for &(index, number) in &clock.0 {
            let index = index as usize;
            if self.0.len() <= index {
                self.0.resize(index + 1, 0);
            }
            news |= self.0[index] < number;
            self.0[index] = self.0[index].max(number);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(entries: &[(u32, u64)]) -> Clock {
        let mut clock = Clock::default();
        entries.iter().for_each(|&(index, number)| clock.raise(index, number));
        clock
    }

    #[test]
    fn joining_takes_the_later_of_each_stream() {
        let mut a = clock(&[(5, 2), (1, 9)]);
        a.join(&clock(&[(1, 3), (5, 4), (7, 1)]));
        assert_eq!(a, clock(&[(1, 9), (5, 4), (7, 1)]));
        assert_eq!((a.of(5), a.of(6)), (4, 0));
    }

    #[test]
    fn what_the_host_knows_is_not_kept() {
        let mut host = Host::default();
        assert!(host.learn(&clock(&[(3, 5)])));
        assert!(!host.learn(&clock(&[(3, 4)])));
        let mut a = clock(&[(3, 5), (2, 1)]);
        a.forget_known(&host);
        assert_eq!(a, clock(&[(2, 1)]));
        assert!(host.knows(3, 5) && !host.knows(3, 6) && !host.knows(9, 1));
        assert!(host.knows(9, 0));
    }
}
