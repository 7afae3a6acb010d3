//! A store in memory. Requests may fail, be executed although they fail, or be executed later; replies may be lost;
//! a process may end at any request, and another process may do anything before or after it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use polder_object::{Created, Creation, Store, StoreError, StoreResult};
use rt::sync::Mutex;

/// The objects, which all processes share.
#[derive(Clone, Default)]
pub(crate) struct World(Arc<Mutex<Objects>>);

#[derive(Default)]
struct Objects {
    objects: BTreeMap<String, Bytes>,
    /// Requests that were given up and may be executed at any later time, or never.
    late: Vec<Request>,
    ignores_conditions: bool,
}

#[derive(Clone)]
enum Request {
    Create(String, Bytes),
    Delete(String),
}

/// What happens to the request at which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// It is not executed.
    Before,
    /// It is executed, and nothing is known of it.
    After,
    /// It is executed later.
    Late,
}

/// What another process does while this one stands still.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// What happens to one process.
#[derive(Default)]
pub(crate) struct Plan {
    /// The process ends at this request.
    pub(crate) end: Option<(u64, At)>,
    /// At this request, another process does this before or after it is executed.
    pub(crate) meanwhile: Option<(u64, At, Meanwhile)>,
    /// One of this many requests has a fault.
    pub(crate) fault_each: Option<u32>,
    pub(crate) seed: u64,
}

/// The store as one process sees it.
#[derive(Clone)]
pub(crate) struct Process(Arc<Mutex<Inner>>);

struct Inner {
    world: World,
    plan: Plan,
    rng: Rng,
    requests: u64,
    is_ended: bool,
    /// The number of the next requests that fail.
    outage: u32,
}

/// The fate of a request.
enum Fate {
    Usual,
    /// It fails, or seems to.
    Fails(At),
    /// The reply is lost, and the repeated request gets this answer.
    Repeated(At),
}

impl World {
    pub(crate) fn process(&self, plan: Plan) -> Process {
        let rng = Rng::with_seed(plan.seed);
        Process(Arc::new(Mutex::new(Inner {
            world: self.clone(),
            plan,
            rng,
            requests: 0,
            is_ended: false,
            outage: 0,
        })))
    }

    /// A copy that changes no more with this one.
    pub(crate) fn copied(&self) -> World {
        let objects = self.0.lock();
        World(Arc::new(Mutex::new(Objects {
            objects: objects.objects.clone(),
            late: objects.late.clone(),
            ignores_conditions: objects.ignores_conditions,
        })))
    }

    pub(crate) fn ignore_conditions(&self) {
        self.0.lock().ignores_conditions = true;
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    pub(crate) fn bytes_of(&self, name: &str) -> Option<Bytes> {
        self.0.lock().objects.get(name).cloned()
    }

    pub(crate) fn replace(&self, name: &str, bytes: Option<Bytes>) {
        let mut world = self.0.lock();
        match bytes {
            Some(bytes) => world.objects.insert(name.to_owned(), bytes),
            None => world.objects.remove(name),
        };
    }

    /// Executes some of the requests that are late.
    pub(crate) fn execute_late(&self, rng: &mut Rng) {
        let mut world = self.0.lock();
        for request in std::mem::take(&mut world.late) {
            match rng.u8(0..4) {
                0 => world.late.push(request),
                1 => {}
                _ => world.execute(&request, false),
            }
        }
    }
}

impl Objects {
    fn execute(&mut self, request: &Request, overwrites: bool) {
        match request {
            Request::Create(name, bytes) if overwrites => {
                self.objects.insert(name.clone(), bytes.clone());
            }
            Request::Create(name, bytes) => {
                self.objects.entry(name.clone()).or_insert_with(|| bytes.clone());
            }
            Request::Delete(name) => {
                self.objects.remove(name);
            }
        }
    }
}

impl Process {
    pub(crate) fn requests(&self) -> u64 {
        self.0.lock().requests
    }

    /// The process ends: no request of it is executed from now on.
    pub(crate) fn end(&self) {
        self.0.lock().is_ended = true;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.0.lock().is_ended
    }

    /// Executes a request that changes something. Returns whether there was an object with this name.
    fn change(&self, request: &Request) -> StoreResult<Created> {
        let meanwhile = self.count()?;
        if let Some((At::Before | At::Late, work)) = meanwhile {
            work();
            return self.change_now(request);
        }
        let result = self.change_now(request);
        if let Some((_, work)) = meanwhile {
            work();
        }
        result
    }

    /// Counts a request. Returns what another process is to do at it.
    fn count(&self) -> StoreResult<Option<(At, Meanwhile)>> {
        let mut inner = self.0.lock();
        inner.requests += 1;
        if inner.is_ended {
            return Err(StoreError::Failed("the process has ended".to_owned()));
        }
        let now = inner.requests;
        let is_due = inner.plan.meanwhile.as_ref().is_some_and(|(at, ..)| *at == now);
        let meanwhile = if is_due { inner.plan.meanwhile.take() } else { None };
        Ok(meanwhile.map(|(_, at, work)| (at, work)))
    }

    fn fate(&self) -> Fate {
        let mut inner = self.0.lock();
        if inner.plan.end.is_some_and(|(at, _)| at == inner.requests) {
            inner.is_ended = true;
            return Fate::Fails(inner.plan.end.expect("it ends here").1);
        }
        let is_faulty = inner.plan.fault_each.is_some_and(|each| inner.rng.u32(0..each) == 0);
        if !is_faulty && inner.outage == 0 {
            return Fate::Usual;
        }
        let at = [At::Before, At::After, At::Late][inner.rng.usize(0..3)];
        if inner.outage > 0 {
            inner.outage -= 1;
            return Fate::Fails(at);
        }
        match inner.rng.u8(0..8) {
            0 => {
                inner.outage = inner.rng.u32(0..9);
                Fate::Fails(at)
            }
            _ => Fate::Repeated(at),
        }
    }

    fn change_now(&self, request: &Request) -> StoreResult<Created> {
        let fate = self.fate();
        let world = self.0.lock().world.clone();
        let mut world = world.0.lock();
        let name = match request {
            Request::Create(name, _) | Request::Delete(name) => name,
        };
        let created = |world: &Objects| match world.objects.contains_key(name) && !world.ignores_conditions {
            true => Created::Exists,
            false => Created::New,
        };
        let failed = || StoreError::Failed("the store does not answer".to_owned());
        match fate {
            Fate::Usual => {
                let result = created(&world);
                let overwrites = world.ignores_conditions;
                world.execute(request, overwrites);
                Ok(result)
            }
            Fate::Fails(At::Before) => Err(failed()),
            Fate::Fails(At::After) => {
                world.execute(request, false);
                Err(failed())
            }
            Fate::Fails(At::Late) => {
                world.late.push(request.clone());
                Err(failed())
            }
            // The first request was executed or not, and the second one is.
            Fate::Repeated(At::Before | At::After) => {
                world.execute(request, false);
                Ok(created(&world))
            }
            // The first one is still in progress when the second one is refused.
            Fate::Repeated(At::Late) => {
                world.late.push(request.clone());
                Ok(Created::Exists)
            }
        }
    }

    /// Counts a request that changes nothing.
    fn look(&self) -> StoreResult<World> {
        let meanwhile = self.count()?;
        let at = meanwhile.map(|(at, work)| {
            work();
            at
        });
        let mut inner = self.0.lock();
        if inner.plan.end.is_some_and(|(end, _)| end == inner.requests) && at.is_none() {
            inner.is_ended = true;
            return Err(StoreError::Failed("the process has ended".to_owned()));
        }
        Ok(inner.world.clone())
    }
}

/// A creation that is executed when it begins, or when its end is waited for.
struct Begun {
    process: Process,
    request: Request,
    result: Option<StoreResult<Created>>,
}

impl Creation for Begun {
    fn wait(mut self: Box<Self>) -> StoreResult<Created> {
        match self.result.take() {
            Some(result) => result,
            None => self.process.change(&self.request),
        }
    }
}

impl Store for Process {
    fn create(&self, name: &str, bytes: Bytes) -> Box<dyn Creation> {
        let request = Request::Create(name.to_owned(), bytes);
        let is_at_once = self.0.lock().rng.bool();
        let result = is_at_once.then(|| self.change(&request));
        Box::new(Begun { process: self.clone(), request, result })
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> StoreResult<Bytes> {
        let world = self.look()?;
        let world = world.0.lock();
        let object = world.objects.get(name).ok_or_else(|| StoreError::NotFound(name.to_owned()))?;
        Ok(match range {
            Some(range) => {
                let end = (range.end as usize).min(object.len());
                object.slice((range.start as usize).min(end)..end)
            }
            None => object.clone(),
        })
    }

    fn list(&self, prefix: &str, after: &str) -> StoreResult<Vec<String>> {
        let world = self.look()?;
        let world = world.0.lock();
        let names = world.objects.keys().filter(|name| name.starts_with(prefix) && name.as_str() > after);
        Ok(names.cloned().collect())
    }

    fn delete(&self, name: &str) -> StoreResult<()> {
        self.change(&Request::Delete(name.to_owned())).map(|_| ())
    }

    fn describe(&self) -> String {
        "the simulated store".to_owned()
    }
}
