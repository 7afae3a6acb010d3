use super::*;

fn shapes() -> impl Iterator<Item = Shape> {
    let sizes = (1..=4).flat_map(|width| (1..=11).map(move |member_blocks| (width, member_blocks)));
    sizes.flat_map(|(width, member_blocks)| {
        let stripes = (1..=5).map(|chunk| Layout::Stripe { chunk });
        let layouts = stripes.chain([Layout::Mirror]);
        layouts.map(move |layout| layout.shape(width, member_blocks))
    })
}

/// The blocks of each member of a stripe in the order in which appends of one block fill it.
fn filled(shape: &Shape) -> Vec<Vec<Blocks>> {
    let mut members = vec![Vec::new(); shape.width as usize];
    for block in 0..shape.capacity() {
        let [piece] = shape.pieces(block, 1)[..] else { panic!("one block is one piece") };
        assert_eq!(piece.blocks, 1);
        match shape.copies(block) {
            1 => {
                assert_eq!(piece.at, members[piece.member].len() as u32, "{shape:?}: no gap before {block}");
                members[piece.member].push(block);
            }
            _ => members.iter_mut().for_each(|member| member.push(block)),
        }
    }
    members
}

#[test]
fn every_block_of_the_members_is_used_once_and_in_order() {
    for shape in shapes() {
        let members = filled(&shape);
        assert!(members.iter().all(|member| member.len() as u32 == shape.member_blocks), "{shape:?}");
        assert!(members.iter().all(|member| member.is_sorted()), "{shape:?}");
    }
}

#[test]
fn pointers_of_members_follow_from_that_of_the_superzone() {
    for shape in shapes() {
        let members = filled(&shape);
        for pointer in 0..=shape.capacity() {
            for (member, blocks) in members.iter().enumerate() {
                let below = blocks.iter().filter(|&&block| block < pointer).count() as u32;
                assert_eq!(shape.member_pointer(member, pointer), below, "{shape:?} {member} {pointer}");
            }
        }
    }
}

#[test]
fn the_covering_pointer_is_the_smallest_one() {
    for shape in shapes().filter(|shape| shape.width <= 3 && shape.member_blocks <= 6) {
        let width = shape.width as usize;
        let most = shape.member_blocks + 1;
        for number in 0..most.pow(shape.width) {
            let members: Vec<Blocks> = (0..width).map(|at| number / most.pow(at as u32) % most).collect();
            let covers = |&pointer: &Blocks| {
                (0..width).all(|member| shape.member_pointer(member, pointer) >= members[member])
            };
            let smallest = (0..=shape.capacity()).find(covers).expect("the capacity covers all");
            assert_eq!(shape.pointer_covering(&members), smallest, "{shape:?} {members:?}");
        }
    }
}

#[test]
fn pieces_are_as_long_as_possible() {
    let shape = Layout::Stripe { chunk: 2 }.shape(3, 4);
    let piece = |member, at, blocks| Piece { member, at, blocks };
    let expected =
        [piece(0, 0, 1), piece(0, 1, 2), piece(1, 1, 2), piece(2, 1, 2), piece(0, 3, 1), piece(1, 3, 1)];
    assert_eq!(shape.pieces(0, 9), expected);
    assert_eq!(shape.pieces(4, 2), [piece(1, 2, 1), piece(2, 1, 1)]);
    assert_eq!(Layout::Mirror.shape(2, 9).pieces(3, 5), [piece(0, 3, 5)]);
}

#[test]
fn a_shape_follows_from_the_capacity_of_its_superzone() {
    for shape in shapes() {
        let again = shape.layout.shape_of(shape.width as usize, shape.capacity());
        assert_eq!((again.member_blocks, again.capacity()), (shape.member_blocks, shape.capacity()));
    }
}

fn geometry() -> Geometry {
    Geometry {
        block_size: 4096,
        zones: 20,
        zone_blocks: 100,
        max_open: 8,
        max_active: 9,
        max_append: 32,
        conventional: 3,
        seek_bytes: 1,
    }
}

fn geometry_of(layout: Layout, members: &[&Geometry]) -> Result<Geometry, SetError> {
    Ok(layout.used(members)?.geometry(layout, members.len(), members))
}

#[test]
fn the_smallest_member_determines_the_geometry() {
    let other = Geometry { zones: 16, zone_blocks: 90, max_append: 40, conventional: 0, ..geometry() };
    let found = geometry_of(Layout::Mirror, &[&geometry(), &other]).unwrap();
    assert_eq!((found.zones, found.zone_blocks, found.conventional), (16 - LABEL_ZONES, 90, 0));
    assert_eq!((found.max_open, found.max_active, found.max_append), (7, 8, 32));
    let found = geometry_of(Layout::STRIPE, &[&geometry(), &other]).unwrap();
    assert_eq!(found.zone_blocks, 1 + 2 * 89);
}

#[test]
fn members_that_do_not_fit_are_refused() {
    let refused =
        |layout: Layout, members: &[&Geometry]| layout.used(members).expect_err("it is refused").to_string();
    let one = geometry();
    let with = |change: fn(&mut Geometry)| {
        let mut changed = geometry();
        change(&mut changed);
        refused(Layout::Mirror, &[&geometry(), &changed])
    };
    assert!(refused(Layout::Mirror, &[&one]).contains("it has 1 members"));
    assert!(refused(Layout::STRIPE, &[&one; 25]).contains("it has 25 members"));
    assert!(refused(Layout::Stripe { chunk: 0 }, &[&one]).contains("a chunk has one block"));
    assert!(with(|one| one.block_size = 512).contains("blocks of 4096 and of 512 bytes"));
    assert!(with(|one| one.zones = 5).contains("no zone beside those of its label"));
    assert!(with(|one| one.max_open = 6).contains("6 zones open, and 7 are needed"));
    let large = Geometry { zone_blocks: Address::BLOCKS_MAX / 2, ..geometry() };
    assert!(refused(Layout::STRIPE, &[&large, &large]).contains("too many for an address"));
}
