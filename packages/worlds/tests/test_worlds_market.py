"""Apps about things that cost: the shop, apartments, cabs; and the city's crime rates."""

from __future__ import annotations

import pytest

from are_scenarios import START, state_of
from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps import check_app
from wanderlust_worlds.apps.apartments import Apartments
from wanderlust_worlds.apps.cabs import Cabs
from wanderlust_worlds.apps.city import COOLDOWN_SECONDS, City
from wanderlust_worlds.apps.shopping import Shopping
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.engine.world import World


@pytest.fixture
def world():
    kinds = {"Shopping": Shopping, "RentAFlat": Apartments, "Cabs": Cabs, "City": City}
    return World([kind.from_are(name, state_of(name)) for name, kind in kinds.items()], start=START, level="high")


@pytest.fixture
def use(world):
    def call(name, /, by="agent", **args):
        app, _, action = name.partition(".")
        return world.call(app, action, args, by=by)

    return call


def refused(use, words, name, /, by="agent", **args):
    with pytest.raises(ToolError, match=words):
        use(name, by=by, **args)


def notices(world):
    return [notice.text for notice in world.deliver()]


def test_products_are_listed_and_found(use):
    page = use("Shopping.list_all_products", offset=1, limit=2)
    assert page == {"products": {"Shirt 01": "p1", "Shirt 02": "p2"}, "metadata": {"range": (1, 3), "total": 12}}
    assert [one.product_id for one in use("Shopping.search_product", product_name="SHIRT 1")] == ["p10", "p11"]
    assert use("Shopping.get_product_details", product_id="p0").variants["i0S"].options == {"size": "S"}
    assert use("Shopping.get_all_discount_codes") == {"TEN": ["i0S"]}
    assert use("Shopping.get_discount_code_info", discount_code="TEN") == {"i0S": 10.0}
    refused(use, "there is no product 'p99'", "Shopping.get_product_details", product_id="p99")
    refused(use, "must not be negative", "Shopping.list_all_products", offset=-1)


def test_things_are_bought(world, use):
    use("Shopping.add_to_cart", item_id="i0S", quantity=2)
    use("Shopping.add_to_cart", item_id="i0S")
    use("Shopping.add_to_cart", item_id="i1S")
    use("Shopping.remove_from_cart", item_id="i0S")
    assert {key: line.quantity for key, line in use("Shopping.list_cart").items()} == {"i0S": 2, "i1S": 1}
    refused(use, "'TEN' does not work for the item i1S", "Shopping.checkout", discount_code="TEN")
    use("Shopping.remove_from_cart", item_id="i1S")
    order = use("Shopping.checkout", discount_code=" TEN ")
    bought = use("Shopping.get_order_details", order_id=order)
    assert (bought.order_total, bought.order_status, bought.order_date) == (
        18.0,
        "processed",
        "2024-10-15T07:00:00+00:00",
    )
    assert use("Shopping.list_cart") == {}
    assert list(use("Shopping.list_orders")) == [order]
    assert use("Shopping.cancel_order", order_id=order) == order
    refused(use, "cannot be cancelled: it is cancelled", "Shopping.cancel_order", order_id=order)
    refused(use, "the cart is empty", "Shopping.checkout")


def test_what_cannot_be_bought(use):
    refused(use, "quantity must be at least 1", "Shopping.add_to_cart", item_id="i0S", quantity=0)
    refused(use, "is not available", "Shopping.add_to_cart", item_id="i0L")
    refused(use, "the id of a product: take one of its variants", "Shopping.add_to_cart", item_id="p0")
    refused(use, "there is no item 'x'", "Shopping.add_to_cart", item_id="x")
    refused(use, "'i0S' is not in the cart", "Shopping.remove_from_cart", item_id="i0S")
    use("Shopping.add_to_cart", item_id="i0S")
    refused(use, "from 0 to 1", "Shopping.remove_from_cart", item_id="i0S", quantity=2)


def test_the_shops_staff_work(world, use):
    product = use("Shopping.add_product", by="env", name="Hat")
    item = use("Shopping.add_item_to_product", by="env", product_id=product, price=5.0, options={"color": "red"})
    use("Shopping.update_item", by="env", item_id=item, new_price=6.0, new_availability=False)
    use("Shopping.add_discount_code", by="env", item_id=item, discount_code={"HALF": 50.0})
    assert world.apps["Shopping"].products[product].variants[item].price == 6.0
    old = {"order_id": "o1", "order_status": "processed", "order_date": 1.0, "order_total": 5.0}
    use("Shopping.add_order", by="data", **old, item_id=item, quantity=1)
    use("Shopping.update_order_status", by="env", order_id="o1")
    use("Shopping.cancel_order", by="env", order_id="o1")
    assert notices(world) == [
        "New product added: Hat",
        f"New item added to product with Id {product}",
        f"New discount code for item with Id {item}",
        "Updated order with Id o1",
        "Order cancelled with Id o1",
    ]
    refused(use, "nothing to change", "Shopping.update_item", by="env", item_id=item)
    refused(use, "a status is one of", "Shopping.update_order_status", by="env", order_id="o1", status="lost")
    refused(use, "there is no order 'o9'", "Shopping.update_order_status", by="env", order_id="o9")


def test_apartments_are_found_and_saved(use):
    def found(**wanted):
        return list(use("RentAFlat.search_apartments", **wanted))

    assert list(use("RentAFlat.list_saved_apartments")) == ["f1"]
    assert found() == ["f0", "f1", "f2", "f3"]
    assert found(min_price=600, max_price=700.0) == ["f1", "f2"]
    assert found(number_of_bedrooms=3, zip_code="10001") == ["f3"]
    assert found(name="FLAT 2", property_type="apartment", amenities=["gym"]) == ["f2"]
    assert found(square_footage=302) == ["f2", "f3"]
    assert found(saved_only=True) == ["f1"]
    assert found(pet_policy="No pets") == []
    use("RentAFlat.save_apartment", apartment_id="f3")
    use("RentAFlat.save_apartment", apartment_id="f3")
    use("RentAFlat.remove_saved_apartment", apartment_id="f1")
    assert list(use("RentAFlat.list_saved_apartments")) == ["f3"]
    refused(use, "is not among the favourites", "RentAFlat.remove_saved_apartment", apartment_id="f1")
    refused(use, "there is no apartment 'f9'", "RentAFlat.get_apartment_details", apartment_id="f9")
    refused(use, "unknown field `rooms`", "RentAFlat.search_apartments", rooms=2)


def test_apartments_come_and_go(world, use):
    new = {"name": "Loft", "location": "Alby", "zip_code": "1", "price": 9.0, "square_footage": 50}
    name = use("RentAFlat.add_new_apartment", by="env", **new, number_of_bedrooms=2, number_of_bathrooms=1)
    assert notices(world) == ["New apartment available with name Loft"]
    assert use("RentAFlat.get_apartment_details", apartment_id=name).bedrooms == 2
    use("RentAFlat.update_apartment", by="env", apartment_id=name, new_price=8.0)
    assert use("RentAFlat.list_all_apartments")[name].price == 8.0
    use("RentAFlat.delete_apartment", by="env", apartment_id="f1")
    assert use("RentAFlat.list_saved_apartments") == {}
    assert Apartments.from_are("A", world.apps["RentAFlat"].to_are()).state() == world.apps["RentAFlat"].state()


WAY = {"start_location": "Alby", "end_location": "Bexby"}


def test_quotations_agree_with_each_other(world, use):
    first, second = (use("Cabs.get_quotation", **WAY, service_type="Default") for _ in range(2))
    assert (first.price, first.distance_km, first.status) == (12.0, 12.0, None)
    assert second.price == first.price
    assert first.delay > 5
    back = [
        use("Cabs.get_quotation", start_location="Bexby", end_location="Alby", service_type="Default") for _ in "ab"
    ]
    assert back[0].distance_km == back[1].distance_km
    assert [ride.service_type for ride in use("Cabs.list_rides", **WAY)] == ["Default"]
    refused(use, "no service 'Premium': one of Default", "Cabs.get_quotation", **WAY, service_type="Premium")
    refused(use, "ride_time must be written", "Cabs.get_quotation", **WAY, service_type="Default", ride_time="now")
    assert len(world.apps["Cabs"].ride_history) == 1


def test_a_way_that_is_too_far_stays_too_far():
    near = {"Default": {"max_distance_km": 5.5}}
    world = World([Cabs.load("Cabs", {"d_service_config": near})], seed=3)
    for _ in range(20):
        with pytest.raises(ToolError, match="too far: at most"):
            world.call("Cabs", "get_quotation", {**WAY, "service_type": "Default"})


def test_a_ride_from_order_to_end(world, use):
    ride = use("Cabs.order_ride", **WAY, service_type="Default", ride_time=format_time(START + 60))
    assert (ride.status, ride.time_stamp, len(ride.delay_history)) == ("BOOKED", START + 60, 1)
    refused(use, "a ride is going on", "Cabs.order_ride", **WAY, service_type="Default")
    assert use("Cabs.get_current_ride_status").delay == ride.delay
    world.advance(120)
    assert use("Cabs.get_current_ride_status").delay == ride.delay - 1
    world.advance(86_400)
    assert use("Cabs.get_current_ride_status").delay == 0
    said = use("Cabs.update_ride_status", by="env", status="IN_PROGRESS", message="Hop on")
    assert said == "Ride status has been updated to IN_PROGRESS. Message from your driver: Hop on"
    assert use("Cabs.end_ride", by="env") == "Ride has been completed."
    assert [use("Cabs.get_ride", idx=n).status for n in (0, 1)] == ["COMPLETED", "COMPLETED"]
    assert notices(world) == ["ride status updated", "ride completed"]
    refused(use, "no ride is going on", "Cabs.get_current_ride_status")
    refused(use, "status must be one of", "Cabs.update_ride_status", by="env", status="LOST")


def test_rides_are_cancelled_and_listed(world, use):
    use("Cabs.order_ride", **WAY, service_type="Default")
    assert world.apps["Cabs"].from_are("Cabs", world.apps["Cabs"].to_are()).state() == world.apps["Cabs"].state()
    assert use("Cabs.user_cancel_ride") == "Ride has been cancelled, sorry to see you go."
    use("Cabs.order_ride", **WAY, service_type="Default")
    assert use("Cabs.cancel_ride", by="env").startswith("The ride has been cancelled")
    use("Cabs.add_new_ride", by="data", **WAY, service_type="Van", price=1.0)
    page = use("Cabs.get_ride_history", offset=1, limit=2)
    assert (list(page["rides"]), page["range"], page["total"]) == ([1, 2], (1, 3), 4)
    assert use("Cabs.get_ride_history_length") == 4
    refused(use, "who_cancel must be", "Cabs.cancel_ride", by="env", who_cancel="me")
    refused(use, "there is no ride -1", "Cabs.get_ride", idx=-1)


def test_the_city_answers_so_often(world, use):
    assert use("City.get_crime_rate", zip_code="10000").violent_crime == 1.0
    refused(use, "nothing about the zip code", "City.get_crime_rate", zip_code="0")
    use("City.get_crime_rate", zip_code="10000")
    assert (use("City.get_api_call_count"), use("City.get_api_call_limit")) == (2, 2)
    refused(use, "2 calls in half an hour", "City.get_crime_rate", zip_code="10000")
    world.advance(COOLDOWN_SECONDS)
    use("City.update_crime_rate", by="env", zip_code="10000", new_violent_crime_rate=3.0)
    assert use("City.get_crime_rate", zip_code="10000").violent_crime == 3.0
    assert use("City.get_api_call_count") == 1
    use("City.add_crime_rate", by="env", zip_code="2", violent_crime_rate=0.0, property_crime_rate=0.5)
    assert use("City.get_crime_rate", zip_code="2").property_crime == 0.5
    refused(use, "nothing to change", "City.update_crime_rate", by="env", zip_code="2")


def test_branches_and_state(world, use):
    aside = world.branch()
    world.call("Shopping", "add_to_cart", {"item_id": "i0S"})
    aside.call("Cabs", "order_ride", {**WAY, "service_type": "Default"})
    assert (len(world.apps["Shopping"].cart), len(aside.apps["Shopping"].cart)) == (1, 0)
    assert (world.apps["Cabs"].current, aside.apps["Cabs"].current) == ("", "1")
    assert [fault for one in (world, aside) for app in one.apps.values() for fault in check_app(app)] == []
