"""A shop: products with variants, a cart, discount codes, orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from msgspec.structs import replace

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, PageExtent, action, format_time, page_extent, page_of, row_of
from wanderlust_worlds.engine.argument_checks import STRIPPED_CHECK
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

ORDER_STATUSES = ("processed", "shipped", "delivered", "cancelled")


class Item(FrozenRecord):
    """A variant of a product: what can be bought."""

    item_id: str
    price: float
    available: bool = True
    options: Mapping[str, Any] = {}


class Product(FrozenRecord):
    """A product and its variants by the ids of these."""

    product_id: str
    name: str
    variants: Mapping[str, Item] = {}


class CartItem(FrozenRecord):
    """A quantity of a variant, and its price for one."""

    item_id: str
    quantity: int
    price: float
    available: bool = True
    options: Mapping[str, Any] = {}


class ShopOrder(FrozenRecord):
    """Things that were bought together."""

    order_id: str
    order_status: str
    order_date: float | str
    """In ISO 8601 as text, or in seconds since 1970."""
    order_total: float
    order_items: Mapping[str, CartItem] = {}


class ProductPage(TypedDict):
    """Names to ids of a part of the products."""

    products: dict[str, str]
    metadata: PageExtent


class Shop(App):
    """The products, carts and orders of a shop, and the actions of its staff."""

    products: CowDict[Product] = CowDict()
    cart: CowDict[CartItem] = CowDict()
    discount_codes: CowDict[Mapping[str, float]] = CowDict()
    """Id of a variant to the codes that work for it, and how many per cent each takes off."""
    orders: CowDict[ShopOrder] = CowDict()

    @action("data", "env", writes=True, notify="high", says="New product added: {name}")
    def add_product(self, name: str) -> str:
        """Add a product without variants. Gives its id."""
        product = Product(product_id=self.new_id(), name=name)
        self.products[product.product_id] = product
        return product.product_id

    @action("data", "env", writes=True, notify="high", says="New item added to product with Id {product_id}")
    def add_item_to_product(
        self, product_id: str, price: float, *, options: dict[str, Any] | None = None, available: bool = True
    ) -> str:
        """Add a variant to a product. Gives its id."""
        product = row_of(self.products, product_id, "product")
        item = Item(item_id=self.new_id(), price=price, available=available, options=options or {})
        self.products[product_id] = replace(product, variants={**product.variants, item.item_id: item})
        return item.item_id

    @action("data", "env", writes=True)
    def update_item(self, item_id: str, new_price: float | None = None, new_availability: bool | None = None) -> str:
        """Change the price or the availability of a variant; what is in a cart keeps its price."""
        product, item = self._item(item_id)
        if new_price is None and new_availability is None:
            raise ToolError("there is nothing to change: give new_price or new_availability")
        price = item.price if new_price is None else new_price
        available = item.available if new_availability is None else new_availability
        changed = replace(item, price=price, available=available)
        self.products[product.product_id] = replace(product, variants={**product.variants, item_id: changed})
        return item_id

    @action("data", "env", writes=True, notify="high", says="New discount code for item with Id {item_id}")
    def add_discount_code(self, item_id: str, discount_code: dict[str, float]) -> str:
        """Add discount codes (code to per cent) for a variant."""
        self._item(item_id)
        self.discount_codes[item_id] = {**self.discount_codes.get(item_id, {}), **discount_code}
        return "Successfully added the discount code"

    @action("data", writes=True)
    def add_order(
        self,
        order_id: str,
        *,
        order_status: str,
        order_date: float,
        order_total: float,
        item_id: str,
        quantity: int,
    ) -> str:
        """Have an order of one variant already."""
        _, item = self._item(item_id)
        self.orders[order_id] = ShopOrder(
            order_id=order_id,
            order_status=order_status,
            order_date=order_date,
            order_total=order_total,
            order_items={item_id: _cart_item(item, quantity)},
        )
        return order_id

    @action("env", writes=True, notify="medium", says="Updated order with Id {order_id}")
    def update_order_status(self, order_id: str, status: str = "shipped") -> None:
        """Set the status of an order: processed, shipped, delivered or cancelled."""
        order = row_of(self.orders, order_id, "order")
        if status not in ORDER_STATUSES:
            raise ToolError(f"a status is one of {', '.join(ORDER_STATUSES)}")
        self.orders[order_id] = replace(order, order_status=status)

    # How it is done

    def _item(self, item_id: str) -> tuple[Product, Item]:
        for product in self.products.values():
            if item_id in product.variants:
                return product, product.variants[item_id]
        hint = "; that is the id of a product: take one of its variants" if item_id in self.products else ""
        raise ToolError(f"there is no item {item_id!r}{hint}")


class Shopping(Shop):
    """A shop with a cart. What is bought are items: the variants of products."""

    aliases = ("ShoppingApp",)

    @action("agent", "data")
    def list_all_products(self, offset: int = 0, limit: int = 10) -> ProductPage:
        """List products, names to ids, in the order of names.

        Args:
            offset: How many products to leave out.
            limit: How many to list at most.
        """
        rows = sorted((product.name, product.product_id) for product in self.products.values())
        return ProductPage(products=dict(page_of(rows, offset, limit)), metadata=page_extent(rows, offset, limit))

    @action("agent", "data")
    def get_product_details(self, product_id: str) -> Product:
        """Read a product with all its variants.

        Args:
            product_id: The id of the product.
        """
        return row_of(self.products, product_id, "product")

    @action("agent", "data")
    def search_product(self, product_name: str, offset: int = 0, limit: int = 10) -> list[Product]:
        """Find products with a text in their name, in any case.

        Args:
            product_name: The text.
            offset: How many of these products to leave out.
            limit: How many to list at most.
        """
        sought = product_name.lower()
        return list(page_of([one for one in self.products.values() if sought in one.name.lower()], offset, limit))

    @action("agent", writes=True)
    def add_to_cart(self, item_id: str, quantity: int = 1) -> str:
        """Put an item into the cart.

        Args:
            item_id: The id of the item: the variant, not the product.
            quantity: How many.
        """
        if quantity <= 0:
            raise ToolError("quantity must be at least 1")
        _, item = self._item(item_id)
        if not item.available:
            raise ToolError(f"the item {item_id} is not available")
        before = self.cart.get(item_id)
        self.cart[item_id] = (
            replace(before, quantity=before.quantity + quantity) if before else _cart_item(item, quantity)
        )
        return item_id

    @action("agent", writes=True)
    def remove_from_cart(self, item_id: str, quantity: int = 1) -> str:
        """Take an item out of the cart.

        Args:
            item_id: The id of the item.
            quantity: How many.
        """
        before = self.cart.get(item_id)
        if before is None:
            raise ToolError(f"the item {item_id!r} is not in the cart")
        if not 0 <= quantity <= before.quantity:
            raise ToolError(f"quantity must be from 0 to {before.quantity}, which is how many are in the cart")
        if quantity == before.quantity:
            del self.cart[item_id]
        else:
            self.cart[item_id] = replace(before, quantity=before.quantity - quantity)
        return item_id

    @action("agent")
    def list_cart(self) -> dict[str, CartItem]:
        """List what is in the cart, by the ids of items."""
        return dict(self.cart.rows())

    @action("agent", writes=True, checks={"discount_code": STRIPPED_CHECK})
    def checkout(self, discount_code: str | None = None) -> str:
        """Order everything in the cart, which is empty then.

        Args:
            discount_code: A code that works for every item in the cart; otherwise nothing is ordered.

        Returns:
            The id of the order.
        """
        if not self.cart:
            raise ToolError("the cart is empty")
        code = discount_code.strip() if discount_code else None
        taken = dict(self.cart.rows())
        off = {}
        for item_id in taken:
            per_cent = self.discount_codes.get(item_id, {}).get(code) if code else 0.0
            if per_cent is None:
                raise ToolError(f"the discount code {code!r} does not work for the item {item_id}")
            off[item_id] = 1 - per_cent / 100
        total = sum(line.price * line.quantity * off[item_id] for item_id, line in taken.items())
        order = ShopOrder(
            order_id=self.new_id(),
            order_status="processed",
            order_date=format_time(self.now, "%Y-%m-%dT%H:%M:%S+00:00"),
            order_total=total,
            order_items=taken,
        )
        self.orders[order.order_id] = order
        self.cart.clear()
        return order.order_id

    @action("agent")
    def get_discount_code_info(self, discount_code: str = "") -> dict[str, float]:
        """Tell for which items a discount code works: ids of items to per cent.

        Args:
            discount_code: The code.
        """
        codes = self.discount_codes.rows()
        return {item_id: discounts[discount_code] for item_id, discounts in codes.items() if discount_code in discounts}

    @action("agent", "data")
    def get_all_discount_codes(self) -> dict[str, list[str]]:
        """List all discount codes and the ids of the items that each works for."""
        items_of: dict[str, list[str]] = {}
        for item_id, discounts in self.discount_codes.rows().items():
            for code in discounts:
                items_of.setdefault(code, []).append(item_id)
        return items_of

    @action("agent")
    def list_orders(self) -> dict[str, ShopOrder]:
        """List all orders by their ids."""
        return dict(self.orders.rows())

    @action("agent")
    def get_order_details(self, order_id: str) -> ShopOrder:
        """Read an order.

        Args:
            order_id: The id of the order.
        """
        return row_of(self.orders, order_id, "order")

    @action("agent", "env", writes=True, notify="medium", says="Order cancelled with Id {order_id}")
    def cancel_order(self, order_id: str) -> str:
        """Cancel an order that was not delivered yet.

        Args:
            order_id: The id of the order.
        """
        order = row_of(self.orders, order_id, "order")
        if order.order_status not in ("processed", "shipped"):
            raise ToolError(f"the order {order_id} cannot be cancelled: it is {order.order_status}")
        self.orders[order_id] = replace(order, order_status="cancelled")
        return order_id


def _cart_item(item: Item, quantity: int) -> CartItem:
    return CartItem(
        item_id=item.item_id, quantity=quantity, price=item.price, available=item.available, options=item.options
    )
