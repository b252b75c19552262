//! How many requests a second the API server is asked: a bucket of tokens, as `clientConnection.qps` and `burst` say (core spec 7.2).

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How often the API server may be asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second in the long run; 0 is 5, what is below knows no limit (client-go's rule).
    pub qps: f32,
    /// Requests at once; 0 is 10.
    pub burst: u32,
}

impl Default for Rate {
    fn default() -> Self {
        Self { qps: 5.0, burst: 10 }
    }
}

/// The bucket. Who comes first is served first.
#[derive(Debug)]
pub(super) struct Limiter {
    /// The time that a token takes to come; `None` for no limit.
    interval: Option<Duration>,
    burst: u32,
    /// When the bucket would be full again if nobody asked.
    full_at: Cell<Option<Instant>>,
}

impl Limiter {
    pub(super) fn new(rate: Rate) -> Self {
        let qps = if rate.qps == 0.0 { 5.0 } else { rate.qps };
        let interval = (qps > 0.0).then(|| Duration::try_from_secs_f32(1.0 / qps).unwrap_or(Duration::MAX));
        let burst = if rate.burst == 0 { 10 } else { rate.burst };
        Self { interval, burst, full_at: Cell::new(None) }
    }

    /// Takes a token and says when it may be used.
    fn take(&self, now: Instant) -> Instant {
        let Some(interval) = self.interval else { return now };
        let full_at = self.full_at.get().filter(|at| *at > now).unwrap_or(now);
        let next = full_at.checked_add(interval).unwrap_or(full_at);
        self.full_at.set(Some(next));
        let room = interval.saturating_mul(self.burst);
        next.checked_sub(room).filter(|at| *at > now).unwrap_or(now)
    }

    /// Waits until the next request may go out.
    pub(super) async fn wait(&self) {
        let now = Instant::now();
        let at = self.take(now);
        if at > now {
            sleep_until(at).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(limiter: &Limiter, now: Instant, requests: usize) -> Vec<u128> {
        (0..requests).map(|_| limiter.take(now).duration_since(now).as_millis()).collect()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let (limiter, now) = (Limiter::new(Rate { qps: 5.0, burst: 3 }), Instant::now());
        assert_eq!(waits(&limiter, now, 6), [0, 0, 0, 200, 400, 600]);
        // After 300 ms a token and a half have come: the debt of three requests is smaller by that.
        assert_eq!(waits(&limiter, now + Duration::from_millis(300), 1), [500]);
        assert_eq!(waits(&limiter, now + Duration::from_secs(60), 4), [0, 0, 0, 200]);
    }

    #[test]
    fn nothing_said_is_the_default_and_below_nothing_no_limit() {
        let now = Instant::now();
        let limiter = Limiter::new(Rate { qps: 0.0, burst: 0 });
        assert_eq!(waits(&limiter, now, 12)[9..], [0, 200, 400]);
        let limiter = Limiter::new(Rate { qps: -1.0, burst: 1 });
        assert_eq!(waits(&limiter, now, 100), [0; 100]);
        // So slow that no clock counts it.
        let limiter = Limiter::new(Rate { qps: f32::MIN_POSITIVE, burst: 1 });
        assert_eq!(waits(&limiter, now, 1), [0]);
    }
}
