//! Streams of responses.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::codegen::BoxStream;

/// The interval of measurements if the agent sends none.
const USUAL: Duration = Duration::from_secs(1);

/// Returns the interval that the agent sent, or the usual one.
pub(crate) fn interval(sent: Duration) -> Duration {
    if sent.is_zero() { USUAL } else { sent }
}

/// Returns a function that calls a plugin with `ask`.
pub(crate) fn look<P, A, F>(plugin: &Arc<P>, ask: A) -> impl Fn() -> F + Send + use<P, A, F>
where
    P: Send + Sync,
    A: Fn(Arc<P>) -> F + Send,
{
    let plugin = Arc::clone(plugin);
    move || ask(Arc::clone(&plugin))
}

/// Sends a result of `look` immediately and after each interval. `None` or an error ends the stream.
pub(crate) fn every<T, L, F>(interval: Duration, look: L) -> ReceiverStream<Result<T, Status>>
where
    T: Send + 'static,
    L: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<Option<T>, Status>> + Send,
{
    send(interval, look, |_| true)
}

/// Sends a result of `look` immediately, and later results if they differ from their predecessors.
pub(crate) fn changes<T, L, F>(interval: Duration, look: L) -> ReceiverStream<Result<T, Status>>
where
    T: Clone + PartialEq + Send + 'static,
    L: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<Option<T>, Status>> + Send,
{
    let mut last = None;
    send(interval, look, move |item: &T| {
        let is_new = last.as_ref() != Some(item);
        last = Some(item.clone());
        is_new
    })
}

fn send<T, L, F>(
    interval: Duration,
    mut look: L,
    mut counts: impl FnMut(&T) -> bool + Send + 'static,
) -> ReceiverStream<Result<T, Status>>
where
    T: Send + 'static,
    L: FnMut() -> F + Send + 'static,
    F: Future<Output = Result<Option<T>, Status>> + Send,
{
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let item = match look().await {
                Ok(Some(item)) if !counts(&item) => None,
                Ok(Some(item)) => Some(Ok(item)),
                Ok(None) => return,
                Err(status) => Some(Err(status)),
            };
            let is_last = matches!(item, Some(Err(_)));
            if let Some(item) = item
                && (sender.send(item).await.is_err() || is_last)
            {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = sender.closed() => return,
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Streams that end with the process.
pub(crate) trait Until<T> {
    /// Ends the stream when the process ends.
    fn until(self, cancel: &CancellationToken) -> BoxStream<T>;
}

impl<T: Send + 'static, S: Stream<Item = Result<T, Status>> + Send + 'static> Until<T> for S {
    fn until(self, cancel: &CancellationToken) -> BoxStream<T> {
        let (sender, receiver) = mpsc::channel(1);
        let cancel = cancel.clone();
        tokio::spawn(async move {
            let mut items = Box::pin(self);
            loop {
                let item = tokio::select! {
                    item = items.next() => item,
                    () = cancel.cancelled() => return,
                    () = sender.closed() => return,
                };
                let Some(item) = item else { return };
                if sender.send(item).await.is_err() {
                    return;
                }
            }
        });
        Box::pin(ReceiverStream::new(receiver))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_ends_with_its_look_or_with_an_error() {
        let mut count = 0;
        let look = move || {
            count += 1;
            async move { Ok(Some(count).filter(|count| *count < 3)) }
        };
        let items: Vec<_> = every(Duration::ZERO, look).collect().await;
        assert_eq!(items.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [1, 2]);
        let failing = || async { Err::<Option<()>, _>(Status::unknown("gone")) };
        let items: Vec<_> = every(Duration::ZERO, failing).collect().await;
        assert!(matches!(items.as_slice(), [Err(status)] if status.message() == "gone"));
    }

    #[tokio::test]
    async fn only_changes_are_sent() {
        let mut looks = [1, 1, 2, 2, 1].into_iter();
        let look = move || std::future::ready(Ok(looks.next()));
        let items: Vec<_> = changes(Duration::ZERO, look).collect().await;
        assert_eq!(items.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [1, 2, 1]);
    }

    #[tokio::test]
    async fn the_end_of_the_process_ends_streams() {
        let cancel = CancellationToken::new();
        let mut items = every(Duration::from_secs(3600), || async { Ok(Some(1)) }).until(&cancel);
        assert_eq!(items.next().await.unwrap().unwrap(), 1);
        cancel.cancel();
        assert!(items.next().await.is_none());
    }

    #[test]
    fn no_interval_is_the_usual_one() {
        assert_eq!(interval(Duration::ZERO), USUAL);
        assert_eq!(interval(Duration::from_millis(5)), Duration::from_millis(5));
    }
}
