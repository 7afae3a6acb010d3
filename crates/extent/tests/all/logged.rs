//! What is logged, counted. For tests of other crates as well.

use std::sync::Arc;

/// What this thread logs while something is done, by level.
#[derive(Clone, Default)]
pub(crate) struct Logged(Arc<rt::sync::Mutex<Vec<tracing::Level>>>);

impl Logged {
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        tracing::subscriber::with_default(self.clone(), work)
    }

    pub(crate) fn count(&self, level: tracing::Level) -> usize {
        self.0.lock().iter().filter(|&&logged| logged == level).count()
    }
}

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lock().push(*event.metadata().level());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
