"""Generated scenes of a trading account, a car, and travel.

The stocks are made up, so that no call on them can be one of the benchmark's.
"""

from assay.tasks.tools.simulated_draw import THINGS, TOPICS, Ask, Draw, Scene, ask, in_order

LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


def symbol(draw: Draw) -> str:
    """A made-up stock symbol; its last letter belongs to the side."""
    return "".join(draw.any_of(LETTERS) for _ in range(3)) + draw.any_of(draw.of_side(LETTERS))


def trade_scene(draw: Draw, count: int) -> Scene:
    """An open market of three stocks, with an account and two orders."""
    names: list[str] = []
    while len(names) < 3:
        new = symbol(draw)
        if new not in names:
            names.append(new)
    stocks = {
        name: {
            "price": draw.amount(10, 300),
            "percent_change": draw.any_of((0.12, -0.34, 1.5, -2.1)),
            "volume": draw.amount(1, 9),
            "MA(5)": draw.amount(10, 300),
            "MA(20)": draw.amount(10, 300),
        }
        for name in names
    }
    first = draw.number(2000, 9000)
    orders = {
        str(first + 2 * n): {
            "id": first + 2 * n,
            "order_type": "Buy",
            "symbol": name,
            "price": stocks[name]["price"],
            "amount": draw.number(2, 40),
            "status": "Open",
        }
        for n, name in enumerate(names[:2])
    }
    config = {
        "orders": orders,
        "account_info": {
            "account_id": first,
            "balance": draw.amount(50000, 90000),
            "binding_card": 10**15 + first,
        },
        "authenticated": True,
        "market_status": "Open",
        "order_counter": first + 4,
        "stocks": stocks,
        "watch_list": [names[2]],
        "transaction_history": [],
        "random_seed": first,
    }
    makers = [
        lambda: quote(draw, names[0]),
        lambda: watch(draw, names[1]),
        lambda: within(draw, names),
        lambda: order(draw, names[0], stocks[names[0]]["price"]),
        lambda: order_details(draw, first),
        lambda: cancel(draw, first + 2),
        lambda: pay_in(draw),
        lambda: withdraw(draw),
        lambda: unwatch(draw, names[2]),
    ]
    return Scene("TradingBot", config, in_order(draw, count, makers))


def quote(draw: Draw, name: str) -> Ask:
    """A price."""
    text = draw.say(
        f"What does a share of {name} cost?",
        f"Get me the current numbers of {name}.",
        f"How does the stock {name} stand?",
    )
    return ask(text, f"{name} stands at {{0}}.", ("get_stock_info", {"symbol": name}))


def watch(draw: Draw, name: str) -> Ask:
    """Add to the watchlist."""
    text = draw.say(
        f"Put {name} on my watchlist.",
        f"I want to keep an eye on {name}, add it to the watchlist.",
        f"My watchlist should have {name}.",
    )
    return ask(text, f"{name} is on your watchlist.", ("add_to_watchlist", {"stock": name}))


def unwatch(draw: Draw, name: str) -> Ask:
    """Take from the watchlist."""
    text = draw.say(
        f"Take {name} off my watchlist.",
        f"I no longer watch {name}, remove it from the list.",
        f"Remove {name} from the watchlist.",
    )
    call = ("remove_stock_from_watchlist", {"symbol": name})
    return ask(text, f"{name} is off your watchlist.", call)


def within(draw: Draw, names: list[str]) -> Ask:
    """Filter by price."""
    low, high = draw.amount(5, 60), draw.amount(200, 400)
    listed = ", ".join(names)
    text = draw.say(
        f"Which of {listed} cost between {low} and {high}?",
        f"From the stocks {listed}, pick those priced from {low} to {high}.",
        f"Filter {listed} by price, at least {low} and at most {high}.",
    )
    call = {"stocks": names, "min_price": low, "max_price": high}
    return ask(text, "These stocks are in that range.", ("filter_stocks_by_price", call))


def order(draw: Draw, name: str, price: float) -> Ask:
    """Place an order."""
    kind, amount = draw.any_of(("Buy", "Sell")), draw.number(2, 60)
    text = draw.say(
        f"{kind} {amount} shares of {name} at {price}.",
        f"Place an order: {kind} {amount} {name} for {price} each.",
        f"I want to place a {kind} order over {amount} shares of {name}, price {price}.",
    )
    call = {"order_type": kind, "symbol": name, "price": price, "amount": amount}
    return ask(text, "The order is placed. Its number is {0}.", ("place_order", call))


def order_details(draw: Draw, number: int) -> Ask:
    """Look at an order."""
    text = draw.say(
        f"Show me order {number}.",
        f"What are the details of order {number}?",
        f"How is my order {number} doing?",
    )
    return ask(text, f"This is order {number}.", ("get_order_details", {"order_id": number}))


def cancel(draw: Draw, number: int) -> Ask:
    """Cancel an order."""
    text = draw.say(
        f"Cancel order {number}.",
        f"I do not want order {number} any more, cancel it.",
        f"Please call off order {number}.",
    )
    return ask(text, f"Order {number} is cancelled.", ("cancel_order", {"order_id": number}))


def pay_in(draw: Draw) -> Ask:
    """Fund the account."""
    amount = draw.amount(100, 5000)
    text = draw.say(
        f"Pay {amount} dollars into my trading account.",
        f"Fund the account with {amount}.",
        f"Add {amount} to my account balance.",
    )
    return ask(text, f"{amount} is paid in.", ("fund_account", {"amount": amount}))


def withdraw(draw: Draw) -> Ask:
    """Withdraw money."""
    amount = draw.amount(100, 5000)
    text = draw.say(
        f"Withdraw {amount} from my trading account.",
        f"I need {amount} dollars out of the account.",
        f"Take {amount} from the balance and pay it out.",
    )
    return ask(text, f"{amount} is paid out.", ("withdraw_funds", {"amount": amount}))


def car_scene(draw: Draw, count: int) -> Scene:
    """A car that stands with unlocked doors."""
    config = {
        "random_seed": draw.number(1000, 9000),
        "fuelLevel": draw.amount(4, 14),
        "doorStatus": dict.fromkeys(DOORS, "unlocked"),
        "headLightStatus": "off",
        "destination": "None",
    }
    config |= {f"{tire}TirePressure": draw.amount(24, 36) for tire in TIRES}
    makers = [
        lambda: fuel(draw),
        lambda: climate(draw),
        lambda: navigate(draw),
        lambda: gallons(draw),
        lambda: brake(draw),
        lambda: reach(draw),
        lambda: lock(draw),
    ]
    return Scene("VehicleControlAPI", config, in_order(draw, count, makers))


DOORS = ("driver", "passenger", "rear_left", "rear_right")
TIRES = ("frontLeft", "frontRight", "rearLeft", "rearRight")


def fuel(draw: Draw) -> Ask:
    """Fill the tank."""
    amount = draw.amount(2, 30)
    text = draw.say(
        f"Fill {amount} gallons into the tank.",
        f"Add {amount} gallons of fuel.",
        f"The car gets {amount} more gallons of gas.",
    )
    reply = "The tank holds {0} gallons now."
    return ask(text, reply, ("fillFuelTank", {"fuelAmount": amount}))


def climate(draw: Draw) -> Ask:
    """Set the climate."""
    degrees, fan = draw.amount(16, 28), draw.number(10, 90)
    mode = draw.any_of(("auto", "cool", "heat", "defrost"))
    text = draw.say(
        f"Set the climate to {degrees} degrees celsius, fan speed {fan}, mode {mode}.",
        f"I would like {degrees} degrees celsius in here, in {mode} mode with the fan at {fan}.",
        f"Climate control: {mode}, {degrees} celsius, fan {fan}.",
    )
    call = {"temperature": degrees, "unit": "celsius", "fanSpeed": fan, "mode": mode}
    return ask(text, f"It is set to {degrees} degrees.", ("adjustClimateControl", call))


def navigate(draw: Draw) -> Ask:
    """Set a destination."""
    town = draw.pick(TOPICS).capitalize()
    place = f"{draw.number(2, 99)} {draw.pick(THINGS).capitalize()} Street, {town}, Oregon"
    text = draw.say(
        f"Navigate to {place}.",
        f"I have to get to {place}. Start the navigation.",
        f"Set {place} as the destination.",
    )
    return ask(text, f"The way leads to {place}.", ("set_navigation", {"destination": place}))


def gallons(draw: Draw) -> Ask:
    """Convert liters."""
    amount = draw.amount(3, 90)
    text = draw.say(
        f"How many gallons are {amount} liters?",
        f"Convert {amount} liters to gallons.",
        f"I have {amount} liters of fuel. What is that in gallons?",
    )
    return ask(text, "That is {0} gallons.", ("liter_to_gallon", {"liter": amount}))


def brake(draw: Draw) -> Ask:
    """Press the pedal halfway."""
    position = round(draw.number(10, 90) / 100 + 0.005, 3)
    text = draw.say(
        f"Press the brake pedal to {position}.",
        f"Put the brake pedal at the position {position}.",
        f"Bring the brake pedal to {position} of its way.",
    )
    return ask(text, "The pedal is pressed.", ("pressBrakePedal", {"pedalPosition": position}))


def reach(draw: Draw) -> Ask:
    """Whether the fuel is enough."""
    miles = draw.amount(40, 600)
    text = draw.say(
        f"Can I drive {miles} miles with the fuel in the tank?",
        f"Is there fuel enough for {miles} miles?",
        f"Will the car make it {miles} miles?",
    )
    call = ("estimate_drive_feasibility_by_mileage", {"distance": miles})
    return ask(text, "The answer is {0}.", call)


def lock(draw: Draw) -> Ask:
    """Lock some doors, and note it."""
    doors = [door for door in DOORS if draw.any_of((True, False))][:3] or [DOORS[0]]
    named = " and ".join(door.replace("_", " ") for door in doors)
    entry = f"parked at the {draw.pick(TOPICS)}"
    text = draw.say(
        f"Lock these doors: {named}. Then log '{entry}'.",
        f"Doors to lock: {named}. After that the log should say '{entry}'.",
        f"Lock {named} and display '{entry}' in the log.",
    )
    call = ("lockDoors", {"unlock": False, "door": doors})
    return ask(text, f"Locked: {named}.", call, ("display_log", {"messages": [entry]}))


CITIES = (
    *("London", "Paris", "Rome", "Tokyo", "Boston", "Chicago", "Beijing", "Greenfield"),
    *("Pinehaven", "Oakendale", "Willowbend", "Maplecrest", "Stonebrook", "Silverpine"),
)
CURRENCIES = ("RMB", "EUR", "JPY", "GBP", "CAD", "AUD", "INR", "RUB", "BRL", "MXN")


def travel_scene(draw: Draw, count: int) -> Scene:
    """A traveller who is signed in and has a credit card."""
    number = draw.number(1000, 9000)
    token, card = f"token{number}", f"card_{number}"
    config = {
        "random_seed": number,
        "credit_card_list": {
            card: {
                "card_number": str(10**15 + number),
                "expiration_date": "05/2031",
                "cardholder_name": f"{draw.pick(THINGS)} {draw.pick(TOPICS)}",
                "card_verification_number": draw.number(100, 999),
                "balance": draw.amount(1000, 9000),
            }
        },
        "booking_record": {},
        "access_token": token,
        "token_type": "Bearer",
        "token_expires_in": 3600,
        "token_scope": "read_write",
    }
    makers = [
        lambda: exchange(draw),
        lambda: balance(draw, token, card),
        lambda: budget(draw, token),
        lambda: airport(draw),
    ]
    return Scene("TravelAPI", config, in_order(draw, count, makers))


def exchange(draw: Draw) -> Ask:
    """Exchange money."""
    amount, target = draw.amount(20, 900), draw.any_of(CURRENCIES)
    text = draw.say(
        f"How much {target} do I get for {amount} USD?",
        f"Exchange {amount} USD into {target} for me.",
        f"What are {amount} USD worth in {target}?",
    )
    call = {"base_currency": "USD", "target_currency": target, "value": amount}
    reply = f"That is {{0}} {target}."
    return ask(text, reply, ("compute_exchange_rate", call))


def balance(draw: Draw, token: str, card: str) -> Ask:
    """A card's balance."""
    text = draw.say(
        f"What is the balance of {card}? My access token is {token}.",
        f"With the token {token}, tell me how much is on {card}.",
        f"Check the card {card} for its balance, access token {token}.",
    )
    call = ("get_credit_card_balance", {"access_token": token, "card_id": card})
    return ask(text, f"The balance of {card} is {{0}}.", call)


def budget(draw: Draw, token: str) -> Ask:
    """Set a budget."""
    limit = draw.amount(300, 6000)
    text = draw.say(
        f"Limit my travel budget to {limit} dollars, access token {token}.",
        f"Set a budget of {limit} USD. The token is {token}.",
        f"My trip must not cost more than {limit}; set that as the budget with token {token}.",
    )
    call = ("set_budget_limit", {"access_token": token, "budget_limit": limit})
    return ask(text, f"The budget is {limit} dollars.", call)


def airport(draw: Draw) -> Ask:
    """Find an airport."""
    city = draw.pick(CITIES)
    text = draw.say(
        f"Which airport is the nearest to {city}?",
        f"I start in {city}. Find the closest airport.",
        f"Where is the nearest airport around {city}?",
    )
    call = ("get_nearest_airport_by_city", {"location": city})
    return ask(text, f"The nearest airport to {city} is {{0}}.", call)
