//! `display.text` and `display.image`.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use wire::{Declaration, Object};

use crate::handler::{Call, Fault, Handler};
use crate::screen::Screen;

/// `display.text`.
pub struct DisplayText {
    declaration: Declaration,
    screen: Arc<dyn Screen>,
}

/// `display.image`.
pub struct DisplayImage {
    declaration: Declaration,
    screen: Arc<dyn Screen>,
}

impl DisplayText {
    /// Shows on `screen`.
    pub fn new(screen: Arc<dyn Screen>) -> Self {
        Self { declaration: Declaration::display_text(), screen }
    }
}

impl DisplayImage {
    /// Shows on `screen`.
    pub fn new(screen: Arc<dyn Screen>) -> Self {
        Self { declaration: Declaration::display_image(), screen }
    }
}

impl Handler for DisplayText {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let _ = (call, &self.screen);
        todo!()
    }
}

impl Handler for DisplayImage {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn run(&self, call: Call) -> BoxFuture<'static, Result<Object, Fault>> {
        let _ = (call, &self.screen);
        todo!()
    }
}
