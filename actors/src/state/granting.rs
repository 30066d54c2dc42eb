//! The keeper's word on a grant: on for what serves now and nothing else, off for whatever there is to take back.

use wire::GrantName;

use super::{Holder, now};
use crate::command::{Event, FailCode, Failure, GrantLine, Reply};
use crate::journal::Draft;
use crate::ownership;
use crate::store::Durable;

impl Holder {
    pub(super) async fn grant(&mut self, name: GrantName, on: bool) -> Result<Reply, Failure> {
        let offer = self.parts.catalogue.now();
        let capabilities = match offer.covered(&name) {
            Some(covered) => covered.to_vec(),
            // What is gone, or not there yet, can still be taken back.
            None if !on && self.has_to_do_with(&name) => vec![name.to_string()],
            None => return Err(offer.no_grant(&name)),
        };
        if on && self.seen.durable.owner.is_none() {
            let message =
                "nobody owns this device yet, so there is nobody to grant to; first: latchkeyd pair".to_owned();
            return Err(Failure::new(FailCode::NotNow, message));
        }
        let now = now(&self.parts);
        let mut next = Durable::clone(&self.seen.durable);
        let seal = offer.handler(&name).and_then(|handler| handler.seal().copied());
        let changed = if on {
            ownership::grant(&mut next, name.clone(), seal, &now)
        } else {
            ownership::revoke(&mut next, &name) || self.seen.retired.iter().any(|retired| retired.grant == name)
        };
        if changed {
            let what = format!("{} {name}", if on { "grant" } else { "revoke" });
            let draft = Draft::keeper(what, next.ownership, now.wall_ms);
            self.commit(next, draft, Vec::new()).await?;
            if !on {
                // Calls that still run on a content that left service end now.
                self.forget_retired(|retired| retired.grant == name);
            }
            self.show();
            self.tell(Event::Grant { name: name.to_string(), on });
        }
        let since = self.seen.durable.grants.get(&name).map(|grant| grant.since_ms);
        let grant = GrantLine { name: name.to_string(), on, capabilities, since };
        Ok(Reply::Granted { grant, changed })
    }

    fn has_to_do_with(&self, name: &GrantName) -> bool {
        let durable = &self.seen.durable;
        durable.grants.contains_key(name)
            || durable.withdrawn.contains_key(name)
            || self.seen.retired.iter().any(|retired| retired.grant == *name)
    }
}
