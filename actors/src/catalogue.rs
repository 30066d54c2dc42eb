//! What the device offers: its capabilities, the grants that follow from them, and the place that captures share.

use std::sync::Arc;

use crate::folder::{FolderNow, RefusedHandler};
use crate::inner::Inner;

/// Takes over the handlers folder.
pub(crate) async fn follow(_inner: &Arc<Inner>, _now: FolderNow) -> Vec<RefusedHandler> {
    Vec::new()
}
