use super::*;
use crate::lock::NoHooks;
use esker_format::{RowId, TreeId};

const TREE: TreeId = TreeId(7);

/// A transaction; only the graph knows what it waits for.
struct Actor {
    owner: Arc<LockOwner>,
    parker: Arc<Parker>,
    held: BTreeMap<u64, LockMode>,
    want: Option<(u64, LockMode)>,
}

fn actor(txn: u64) -> Actor {
    Actor { owner: LockOwner::new(TxnId(txn)), parker: Parker::new(), held: BTreeMap::new(), want: None }
}

fn key(row: u64) -> WaitKey {
    WaitKey::Row(TREE, RowId(row))
}

impl Actor {
    fn blocks(&self, exclusive: bool) -> Blocker {
        Blocker { owner: self.owner.clone(), exclusive }
    }

    fn enter(&self, graph: &mut Graph, row: u64, mode: LockMode, blockers: &[Blocker]) -> bool {
        self.enter_by(graph, &NoHooks, row, mode, blockers)
    }

    fn enter_by(
        &self,
        graph: &mut Graph,
        hooks: &dyn WaitHooks,
        row: u64,
        mode: LockMode,
        blockers: &[Blocker],
    ) -> bool {
        let (owner, parker, event) = (&self.owner, &self.parker, esker_base::WaitEvent::RowLock);
        let wait = Wait { owner, parker, key: key(row), row: None, mode, event, hooks };
        graph.enter(&wait, Duration::ZERO, blockers)
    }

    /// It has done so much.
    fn works(self, changes: u64) -> Actor {
        self.owner.activity.set_changes(changes);
        self
    }

    fn refused(&self, graph: &Graph) -> bool {
        graph.waiting.get(&self.owner.txn).is_some_and(|w| w.refused)
    }

    fn awake(&self, graph: &Graph) -> bool {
        graph.waiting.get(&self.owner.txn).is_none_or(|w| w.line.is_none())
    }
}

/// Steps that `work` takes.
fn steps<T>(graph: &mut Graph, work: impl FnOnce(&mut Graph) -> T) -> u64 {
    let before = graph.steps;
    work(graph);
    graph.steps - before
}

/// One row is handed on to each of `n`; the most steps that one of them cost.
fn dearest_turn(n: u64, overtaken: bool) -> u64 {
    let mut graph = Graph::default();
    let mut holder = actor(1);
    let mut waiters: Vec<Actor> = (0..n).map(|i| actor(10 + i)).collect();
    for w in &waiters {
        assert!(w.enter(&mut graph, 5, LockMode::Exclusive, &[holder.blocks(true)]));
    }
    let mut most = 0;
    for turn in 0..n {
        most = most.max(steps(&mut graph, |graph| graph.released(holder.owner.txn, Released::All)));
        let woken: Vec<usize> = (0..waiters.len()).filter(|i| waiters[*i].awake(&graph)).collect();
        assert_eq!(woken, [0], "the first who came, and no other");
        let next = waiters.remove(0);
        if overtaken {
            // Another takes the row before; the woken one finds it taken.
            let other = actor(10_000 + turn);
            most = most.max(steps(&mut graph, |graph| {
                assert!(next.enter(graph, 5, LockMode::Exclusive, &[other.blocks(true)]));
                graph.released(other.owner.txn, Released::All);
            }));
            assert!(next.awake(&graph), "who was overtaken keeps its place");
        }
        most = most.max(steps(&mut graph, |graph| graph.granted(next.owner.txn)));
        graph.check();
        holder = next;
    }
    assert!(graph.waiting.is_empty() && graph.lines.is_empty() && graph.behind.is_empty() && graph.by_key.is_empty());
    most
}

#[test]
fn to_hand_on_costs_what_is_woken() {
    for overtaken in [false, true] {
        let (few, many) = (dearest_turn(8, overtaken), dearest_turn(800, overtaken));
        assert!(many <= few + 2, "{few} steps of 8 waiters, {many} of 800, overtaken {overtaken}");
    }
}

#[test]
fn to_give_up_costs_what_is_woken() {
    let mut graph = Graph::default();
    let holder = actor(1);
    let waiters: Vec<Actor> = (0..800).map(|i| actor(10 + i)).collect();
    for w in &waiters {
        assert!(w.enter(&mut graph, 5, LockMode::Exclusive, &[holder.blocks(true)]));
    }
    graph.released(holder.owner.txn, Released::All);
    // Each is woken, has run out of time, and wakes the next.
    for (i, w) in waiters.iter().enumerate() {
        assert!(w.awake(&graph));
        assert!(waiters.get(i + 1).is_none_or(|next| !next.awake(&graph)));
        assert!(steps(&mut graph, |graph| graph.give_up(w.owner.txn, key(5))) < 12);
    }
    assert!(graph.lines.is_empty());
}

#[test]
fn to_let_go_of_one_row_costs_nothing_of_the_others() {
    let mut graph = Graph::default();
    let holder = actor(1);
    let waiters: Vec<Actor> = (0..800).map(|i| actor(10 + i)).collect();
    for (row, w) in waiters.iter().enumerate() {
        assert!(w.enter(&mut graph, row as u64, LockMode::Exclusive, &[holder.blocks(true)]));
    }
    let cost = steps(&mut graph, |graph| graph.released(holder.owner.txn, Released::Row(TREE, RowId(400))));
    assert!(waiters[400].awake(&graph) && !waiters[399].awake(&graph));
    assert!(cost < 12, "{cost} steps");
    graph.check();
}

#[test]
fn those_who_share_wake_together_and_the_others_stand_behind_all_of_them() {
    let mut graph = Graph::default();
    let holder = actor(1);
    let modes = [LockMode::Shared, LockMode::Exclusive, LockMode::Shared, LockMode::Exclusive];
    let actors: Vec<Actor> = (0..4).map(|i| actor(10 + i)).collect();
    for (a, mode) in actors.iter().zip(modes) {
        assert!(a.enter(&mut graph, 5, mode, &[holder.blocks(true)]));
    }
    graph.released(holder.owner.txn, Released::All);
    let awake: Vec<bool> = actors.iter().map(|a| a.awake(&graph)).collect();
    assert_eq!(awake, [true, false, true, false]);
    graph.granted(actors[0].owner.txn);
    graph.granted(actors[2].owner.txn);
    // Whichever of the two waits for somebody behind them closes a circle.
    for a in [&actors[0], &actors[2]] {
        assert!(!a.enter(&mut graph, 6, LockMode::Exclusive, &[actors[3].blocks(true)]));
    }
    graph.check();
}

/// Whoever stands behind one that was overtaken would stand behind another then, who waits for it.
#[test]
fn a_circle_that_a_move_would_close_is_found() {
    let mut graph = Graph::default();
    let [holder, first, second, thief] = [1, 2, 3, 4].map(actor);
    for a in [&first, &second] {
        assert!(a.enter(&mut graph, 5, LockMode::Exclusive, &[holder.blocks(true)]));
    }
    graph.released(holder.owner.txn, Released::All);
    // The row is taken before the first comes to it, by somebody who then waits for a row of the second.
    assert!(thief.enter(&mut graph, 6, LockMode::Exclusive, &[second.blocks(true)]));
    assert!(!first.enter(&mut graph, 5, LockMode::Exclusive, &[thief.blocks(true)]));
    assert!(second.awake(&graph), "it is to look, too");
    assert!(!second.enter(&mut graph, 5, LockMode::Exclusive, &[thief.blocks(true)]));
    graph.check();
}

/// Two of whom each waits for the other; the first has done less, and is refused.
fn refused_and_its_winner(graph: &mut Graph) -> (Actor, Actor) {
    let (victim, winner) = (actor(1).works(1), actor(2).works(2));
    assert!(victim.enter(graph, 5, LockMode::Exclusive, &[winner.blocks(true)]));
    assert!(winner.enter(graph, 6, LockMode::Exclusive, &[victim.blocks(true)]));
    assert!(victim.refused(graph) && victim.awake(graph) && !winner.awake(graph));
    assert_eq!(graph.closed.iter().map(|w| w.txn.0).collect::<Vec<_>>(), [1, 2]);
    (victim, winner)
}

#[test]
fn a_refusal_is_of_one_wait_however_that_ends() {
    let granted = |graph: &mut Graph, victim: &Actor| graph.granted(victim.owner.txn);
    let times_out = |graph: &mut Graph, victim: &Actor| graph.give_up(victim.owner.txn, key(5));
    // Its circle is gone, but others have been told that it is the victim.
    let comes_again = |graph: &mut Graph, victim: &Actor| {
        graph.give_up(TxnId(2), key(6));
        !victim.enter(graph, 5, LockMode::Exclusive, &[actor(3).blocks(true)])
    };
    for end in [granted, times_out, comes_again] {
        let mut graph = Graph::default();
        let (victim, winner) = refused_and_its_winner(&mut graph);
        assert!(end(&mut graph, &victim), "it is told");
        graph.check();
        graph.give_up(winner.owner.txn, key(6));
        assert!(graph.waiting.is_empty());
        assert!(victim.enter(&mut graph, 5, LockMode::Exclusive, &[winner.blocks(true)]));
        assert!(!victim.refused(&graph));
        assert!(!graph.granted(victim.owner.txn));
    }
}

/// Who must end before another one of the circle is not refused, whatever it has done and whoever closes it.
#[test]
fn who_has_to_end_first_goes_on() {
    struct Ordered;
    impl WaitHooks for Ordered {
        fn reports(&self) -> bool {
            true
        }
        // Each group of ten in the order of the numbers.
        fn goes_before(&self, txn: TxnId, other: TxnId) -> bool {
            txn.0 / 10 == other.0 / 10 && txn.0 < other.0
        }
    }
    let hooks = |reports: bool| if reports { &Ordered as &dyn WaitHooks } else { &NoHooks };
    // Transactions, in the order in which they come to wait for the next, with what they have done; the place of the victim.
    type Case<'a> = (&'a [(u64, u64, bool)], usize);
    let cases: [Case<'_>; 7] = [
        (&[(11, 0, true), (12, 9, true)], 1),
        (&[(12, 9, true), (11, 0, true)], 0),
        (&[(11, 0, false), (12, 9, false)], 0),
        (&[(11, 0, true), (12, 9, false)], 0),
        // One of the two is not refused, so somebody who has no place in the order, or in another one, may be.
        (&[(11, 1, true), (20, 5, true), (12, 9, true)], 1),
        (&[(11, 1, true), (30, 5, false), (12, 3, true)], 2),
        (&[(12, 7, true), (13, 8, true), (11, 0, true), (21, 6, true), (22, 7, true)], 4),
    ];
    for (case, victim) in cases {
        let mut graph = Graph::default();
        let actors: Vec<Actor> = case.iter().map(|(txn, work, _)| actor(*txn).works(*work)).collect();
        let mut entered = true;
        for (i, (_, _, reports)) in case.iter().enumerate() {
            assert!(entered);
            let next = actors[(i + 1) % actors.len()].blocks(true);
            entered = actors[i].enter_by(&mut graph, hooks(*reports), i as u64, LockMode::Exclusive, &[next]);
        }
        assert_eq!(graph.closed[0].txn.0, case[victim].0, "{case:?}");
        assert_eq!(entered, victim + 1 < case.len(), "{case:?}");
        graph.check();
    }
}

/// Two who share what a third wants alone both wait for it.
#[test]
fn who_closes_two_circles_goes_alone_if_it_has_to_go() {
    for (work, refused) in [(3, [true, true]), (1, [false, false]), (0, [false, false])] {
        let mut graph = Graph::default();
        let (least, most, closes) = (actor(1).works(0), actor(2).works(2), actor(3).works(work));
        for (row, a) in [&least, &most].into_iter().enumerate() {
            assert!(a.enter(&mut graph, row as u64, LockMode::Exclusive, &[closes.blocks(true)]));
        }
        let blockers = [least.blocks(false), most.blocks(false)];
        let entered = closes.enter(&mut graph, 5, LockMode::Exclusive, &blockers);
        assert_eq!((entered, [least.refused(&graph), most.refused(&graph)]), (refused[0], refused));
        assert_eq!(graph.closed[0].txn, TxnId(if entered { 2 } else { 3 }));
        graph.check();
    }
}

/// Who is refused may stand behind the one who closes the circle, for the same row.
#[test]
fn a_follower_or_a_thief_is_refused() {
    for (works, refused) in [([2, 1, 3], 1), ([2, 3, 1], 2)] {
        let mut graph = Graph::default();
        let holder = actor(1);
        let [first, second, thief] = [0, 1, 2].map(|i| actor(2 + i as u64).works(works[i]));
        for a in [&first, &second] {
            assert!(a.enter(&mut graph, 5, LockMode::Exclusive, &[holder.blocks(true)]));
        }
        graph.released(holder.owner.txn, Released::All);
        assert!(thief.enter(&mut graph, 6, LockMode::Exclusive, &[second.blocks(true)]));
        assert!(first.enter(&mut graph, 5, LockMode::Exclusive, &[thief.blocks(true)]));
        let all = [&first, &second, &thief];
        assert_eq!(all.map(|a| a.refused(&graph)), [0, 1, 2].map(|i| i == refused));
        assert!(!first.awake(&graph));
        graph.check();
        // Rolled back, it lets whoever waits for it go on.
        let row = if refused == 1 { 5 } else { 6 };
        assert!(!all[refused].enter(&mut graph, row, LockMode::Exclusive, &[actor(9).blocks(true)]));
        graph.released(all[refused].owner.txn, Released::All);
        assert!(all[if refused == 1 { 2 } else { 0 }].awake(&graph));
        graph.check();
    }
}

/// Who shares a row, and is refused when it wants it alone, has others behind it for that row.
#[test]
fn who_stood_behind_a_victim_looks() {
    let mut graph = Graph::default();
    let (victim, closes, after) = (actor(1), actor(2).works(1), actor(3));
    assert!(victim.enter(&mut graph, 5, LockMode::Exclusive, &[closes.blocks(false)]));
    assert!(after.enter(&mut graph, 5, LockMode::Exclusive, &[victim.blocks(false)]));
    assert!(closes.enter(&mut graph, 6, LockMode::Exclusive, &[victim.blocks(true)]));
    assert!(victim.refused(&graph) && !after.awake(&graph));
    assert!(!victim.enter(&mut graph, 5, LockMode::Exclusive, &[closes.blocks(false)]));
    assert!(after.awake(&graph) && !closes.awake(&graph));
    graph.check();
}

/// A chain of n, and n behind its end: the search goes over each line once.
#[test]
fn a_circle_is_found_in_steps_of_the_graph() {
    let n = 2000;
    let mut graph = Graph::default();
    let actors: Vec<Actor> = (0..=n).map(|i| actor(10 + i)).collect();
    for (i, pair) in actors.windows(2).enumerate() {
        // Two ways at each step: without remembering, two to the n.
        let blockers = [pair[1].blocks(false), actors[(i + 2).min(n as usize)].blocks(false)];
        assert!(pair[0].enter(&mut graph, i as u64, LockMode::Exclusive, &blockers));
    }
    graph.steps = 0;
    assert!(!actors[n as usize].enter(&mut graph, n, LockMode::Exclusive, &[actors[0].blocks(true)]));
    assert!(graph.steps < 4 * n, "{} steps for {n} waiters", graph.steps);
    graph.check();
}

/// Actors that lock, let go, give up and end at random. Nobody sleeps behind somebody who does not stand in its way,
/// nor do all sleep: no wake-up is lost, and every circle is found.
#[test]
fn nobody_is_forgotten() {
    for seed in 1..=60u64 {
        let mut rng = seed;
        let mut random = |n: usize| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (rng >> 33) as usize % n
        };
        let mut graph = Graph::default();
        let mut actors: Vec<Actor> = (1..=6).map(actor).collect();
        let (mut waits, mut circles, mut refused) = (0, 0, 0);
        for _ in 0..1500 {
            let i = random(actors.len());
            if !actors[i].awake(&graph) {
                match random(30) {
                    // Time is up.
                    0 => {
                        let (row, _) = actors[i].want.take().unwrap();
                        graph.give_up(actors[i].owner.txn, key(row));
                    }
                    // It wakes for nothing.
                    1..=3 => circles += u64::from(!attempt(&mut graph, &mut actors, i)),
                    _ => {}
                }
            } else if actors[i].want.is_some() {
                circles += u64::from(!attempt(&mut graph, &mut actors, i));
            } else {
                match random(10) {
                    0 => end(&mut graph, &mut actors[i]),
                    1 => {
                        if let Some((row, _)) = actors[i].held.pop_first() {
                            graph.released(actors[i].owner.txn, Released::Row(TREE, RowId(row)));
                        }
                    }
                    _ => {
                        let mode = [LockMode::Shared, LockMode::Exclusive][random(2)];
                        actors[i].want = Some((random(4) as u64, mode));
                        actors[i].owner.activity.set_changes(random(3) as u64);
                        circles += u64::from(!attempt(&mut graph, &mut actors, i));
                    }
                }
            }
            waits += u64::from(!actors[i].awake(&graph));
            refused += actors.iter().filter(|a| a.refused(&graph)).count();
            graph.check();
            look(&graph, &actors, seed);
        }
        assert!(
            waits > 100 && circles > 0 && refused > 0,
            "seed {seed}: {waits} waits, {circles} circles, {refused} refused"
        );
    }
}

/// An actor tries to get what it wants; false: it was the victim of a circle, and has ended.
fn attempt(graph: &mut Graph, actors: &mut [Actor], i: usize) -> bool {
    let Some((row, mode)) = actors[i].want else { return true };
    let blockers = blockers(actors, i, row, mode);
    if blockers.is_empty() {
        graph.granted(actors[i].owner.txn);
        let held = actors[i].held.entry(row).or_insert(mode);
        if mode == LockMode::Exclusive {
            *held = mode;
        }
        actors[i].want = None;
        return true;
    }
    let entered = actors[i].enter(graph, row, mode, &blockers);
    if !entered {
        actors[i].want = None;
        end(graph, &mut actors[i]);
    }
    entered
}

fn blockers(actors: &[Actor], i: usize, row: u64, mode: LockMode) -> Vec<Blocker> {
    let others = actors.iter().enumerate().filter(|(other, _)| *other != i);
    let conflicts = |held: LockMode| held == LockMode::Exclusive || mode == LockMode::Exclusive;
    let held = others.filter_map(|(_, a)| Some((a, *a.held.get(&row)?)));
    held.filter(|(_, held)| conflicts(*held)).map(|(a, held)| a.blocks(held == LockMode::Exclusive)).collect()
}

fn end(graph: &mut Graph, actor: &mut Actor) {
    actor.held.clear();
    graph.released(actor.owner.txn, Released::All);
}

/// Somebody is awake; and who sleeps does so behind one who holds what it wants, or was woken for it.
fn look(graph: &Graph, actors: &[Actor], seed: u64) {
    assert!(actors.iter().any(|a| a.awake(graph)), "seed {seed}: all wait");
    for (i, a) in actors.iter().enumerate().filter(|(_, a)| !a.awake(graph)) {
        let (row, mode) = a.want.unwrap();
        let line = &graph.lines[&graph.waiting[&a.owner.txn].line.unwrap()];
        let real = blockers(actors, i, row, mode);
        let stands = |h: &Arc<LockOwner>| {
            let holder = actors.iter().find(|a| a.owner.txn == h.txn).unwrap();
            let awake = holder.awake(graph) && !holder.refused(graph);
            let on_its_way = awake && holder.want.is_some_and(|w| w.0 == row);
            on_its_way || real.iter().any(|b| b.owner.txn == h.txn)
        };
        assert!(line.holders.iter().any(stands), "seed {seed}: {} sleeps for nothing", a.owner.txn);
    }
}
