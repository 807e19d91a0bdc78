"""Generated scenes of tickets, messages between colleagues, and posts."""

from assay.tasks.tools.simulated_draw import PEOPLE, THINGS, TOPICS, Ask, Draw, Scene, ask, in_order


def ticket_scene(draw: Draw, count: int) -> Scene:
    """A queue with two open tickets; they are read, changed, resolved, closed, and more come."""
    user = draw.pick(PEOPLE).lower()
    first = draw.number(100, 900)
    queue = [
        {
            "id": first + 2 * n,
            "title": f"{draw.pick(TOPICS)} {draw.pick(THINGS)}",
            "description": f"The {draw.pick(THINGS)} makes a noise",
            "status": "Open",
            "priority": 1,
            "created_by": user,
        }
        for n in range(2)
    ]
    one, other = (ticket["id"] for ticket in queue)
    config = {"ticket_queue": queue, "ticket_counter": first + 4, "current_user": user}
    makers = [
        lambda: look(draw, one),
        lambda: create(draw),
        lambda: change(draw, other),
        lambda: list_open(draw, user),
        lambda: resolve(draw, one),
        lambda: close(draw, other),
        lambda: sign_in(draw),
    ]
    return Scene("TicketAPI", config, in_order(draw, count, makers))


def look(draw: Draw, number: int) -> Ask:
    """Read a ticket."""
    text = draw.say(
        f"What is ticket {number} about?",
        f"Show me the details of ticket {number}.",
        f"Pull up ticket number {number}, please.",
    )
    return ask(text, f"This is ticket {number}.", ("get_ticket", {"ticket_id": number}))


def create(draw: Draw) -> Ask:
    """Open a ticket."""
    title = f"{draw.pick(TOPICS)} {draw.pick(THINGS)} broken"
    description, priority = f"{draw.pick(PEOPLE)} saw it first", draw.any_of((2, 3, 4, 5))
    text = draw.say(
        f"Open a ticket titled '{title}', described as '{description}', with priority {priority}.",
        f"I need a new ticket '{title}' of priority {priority}. Its text is '{description}'.",
        f"File '{title}' as a priority {priority} ticket and describe it as '{description}'.",
    )
    call = {"title": title, "description": description, "priority": priority}
    return ask(text, "The ticket is open. Its number is {0}.", ("create_ticket", call))


def change(draw: Draw, number: int) -> Ask:
    """Change a ticket's priority or title."""
    if draw.any_of((True, False)):
        updates, what = {"priority": draw.any_of((2, 3, 4, 5))}, "priority"
    else:
        updates, what = {"title": f"{draw.pick(TOPICS)} {draw.pick(THINGS)} again"}, "title"
    value = repr(updates[what])
    text = draw.say(
        f"Set the {what} of ticket {number} to {value}.",
        f"Ticket {number} should have the {what} {value}.",
        f"Change ticket {number}: its {what} becomes {value}.",
    )
    call = ("edit_ticket", {"ticket_id": number, "updates": updates})
    return ask(text, f"The {what} of ticket {number} is {value} now.", call)


def resolve(draw: Draw, number: int) -> Ask:
    """Resolve a ticket."""
    how = f"{draw.pick(PEOPLE)} replaced the {draw.pick(THINGS)}"
    text = draw.say(
        f"Ticket {number} is solved: '{how}'. Mark it as resolved.",
        f"Resolve ticket {number} with the resolution '{how}'.",
        f"Note '{how}' as the resolution of ticket {number}.",
    )
    call = ("resolve_ticket", {"ticket_id": number, "resolution": how})
    return ask(text, f"Ticket {number} is resolved.", call)


def close(draw: Draw, number: int) -> Ask:
    """Close a ticket."""
    text = draw.say(
        f"Close ticket {number}.",
        f"We are done with ticket {number}, close it.",
        f"Ticket {number} can be closed now.",
    )
    return ask(text, f"Ticket {number} is closed.", ("close_ticket", {"ticket_id": number}))


def list_open(draw: Draw, user: str) -> Ask:
    """Sign in, and list one's tickets."""
    word = f"{draw.pick(THINGS)}{draw.number(100, 999)}"
    text = draw.say(
        f"I am {user}, my password is {word}. Sign in and tell me which of my tickets are open.",
        f"Log in as {user} with {word}, then list the open tickets of mine.",
        f"Sign {user} in, password {word}, and show the open tickets.",
    )
    login = ("ticket_login", {"username": user, "password": word})
    call = ("get_user_tickets", {"status": "Open"})
    return ask(text, "These are your open tickets.", login, call)


def sign_in(draw: Draw) -> Ask:
    """Sign in as another user."""
    user, word = draw.pick(PEOPLE).lower(), f"{draw.pick(THINGS)}{draw.number(100, 999)}"
    text = draw.say(
        f"Sign in to the ticket system as {user} with the password {word}.",
        f"Log {user} in for tickets, the password is {word}.",
        f"Use {user} and {word} to log in to the tickets.",
    )
    call = ("ticket_login", {"username": user, "password": word})
    return ask(text, f"{user} is signed in.", call)


def message_scene(draw: Draw, count: int) -> Scene:
    """A workspace of four people, one of whom is signed in."""
    people = [draw.pick(PEOPLE) for _ in range(4)]
    first = draw.number(100, 800)
    ids = {name: f"USR{first + 2 * n}" for n, name in enumerate(people)}
    me, one, other, last = people
    old = f"The {draw.pick(TOPICS)} needs a {draw.pick(THINGS)}"
    config = {
        "user_count": first + 8,
        "user_map": ids,
        "inbox": [{ids[other]: old}],
        "message_count": 1,
        "current_user": ids[me],
        "random_seed": first,
    }
    makers = [
        lambda: send(draw, one, None),
        lambda: send(draw, last, ids[last]),
        lambda: find(draw, old),
        lambda: add(draw),
        lambda: whose(draw, other),
        lambda: unsend(draw, ids[other], other),
    ]
    return Scene("MessageAPI", config, in_order(draw, count, makers))


def send(draw: Draw, name: str, number: str | None) -> Ask:
    """Send a message, to an id that is known or has to be looked up."""
    content = f"The {draw.pick(THINGS)} of the {draw.pick(TOPICS)} is ready"
    if number is not None:
        text = draw.say(
            f"Send '{content}' to {number}.",
            f"Message the user {number}: '{content}'.",
            f"Let {number} know: '{content}'.",
        )
        call = ("send_message", {"receiver_id": number, "message": content})
        return ask(text, f"The message to {number} is sent.", call)
    text = draw.say(
        f"Tell {name}: '{content}'. Look up the user id first.",
        f"Find out {name}'s user id and send '{content}' to it.",
        f"I do not know the id of {name}, but please send there '{content}'.",
    )
    return ask(text, f"The message to {name} is sent.", *lookup_and_send(draw, name, content))


IDS = "\x00id of "
"""Begins an argument that is only known once a user id was looked up."""


def lookup_and_send(draw: Draw, name: str, content: str) -> tuple:
    """Look an id up, then use it."""
    call = {"receiver_id": IDS + name, "message": content}
    return ("get_user_id", {"user": name}), ("send_message", call)


def find(draw: Draw, old: str) -> Ask:
    """Search messages."""
    word = old.rpartition(" ")[2]
    text = draw.say(
        f"Which messages mention the {word}?",
        f"Search the messages for '{word}'.",
        f"Did anybody get a message with {word} in it?",
    )
    call = ("search_messages", {"keyword": word})
    return ask(text, f"These messages mention {word}.", call)


def add(draw: Draw) -> Ask:
    """Add a contact."""
    name = draw.pick(PEOPLE)
    text = draw.say(
        f"Add {name} to the contacts.",
        f"{name} is new here, make a contact.",
        f"Please create the contact {name}.",
    )
    return ask(text, f"{name} is a contact now.", ("add_contact", {"user_name": name}))


def whose(draw: Draw, name: str) -> Ask:
    """Look up an id."""
    text = draw.say(
        f"What is the user id of {name}?",
        f"Look up {name}'s id.",
        f"Which id does {name} have in this workspace?",
    )
    return ask(text, f"The user id of {name} is {{0}}.", ("get_user_id", {"user": name}))


def unsend(draw: Draw, number: str, name: str) -> Ask:
    """Delete a message."""
    text = draw.say(
        f"Take back my latest message to {number}.",
        f"Delete the last message that went to {number}.",
        f"The newest message to {number} should be deleted.",
    )
    reply = f"The latest message to {number} is deleted."
    return ask(text, reply, ("delete_message", {"receiver_id": number}))


def post_scene(draw: Draw, count: int) -> Scene:
    """An account that follows two people, with a post of one of them."""
    me, one, other = (draw.pick(PEOPLE).lower() for _ in range(3))
    number = draw.number(100, 900)
    tweet = {
        "id": number,
        "username": one,
        "content": f"Look at the {draw.pick(THINGS)} of our {draw.pick(TOPICS)}",
        "tags": [],
        "mentions": [],
    }
    config = {
        "username": me,
        "password": f"{draw.pick(THINGS)}{draw.number(10, 99)}",
        "authenticated": True,
        "tweets": {str(number): tweet},
        "comments": {},
        "retweets": {},
        "following_list": [one, other],
        "tweet_counter": number + 2,
    }
    makers = [
        lambda: post(draw),
        lambda: comment(draw, number),
        lambda: pass_on(draw, number),
        lambda: follow(draw),
        lambda: unfollow(draw, other),
        lambda: mention(draw, number),
    ]
    return Scene("TwitterAPI", config, in_order(draw, count, makers))


def post(draw: Draw) -> Ask:
    """Post something."""
    content, tag = f"Our {draw.pick(TOPICS)} has a new {draw.pick(THINGS)}", f"#{draw.pick(TOPICS)}"
    text = draw.say(
        f"Post '{content}' with the tag {tag}.",
        f"I want to tweet '{content}', tagged {tag}.",
        f"Publish '{content}' and tag it {tag}.",
    )
    return ask(text, "It is posted.", ("post_tweet", {"content": content, "tags": [tag]}))


def comment(draw: Draw, number: int) -> Ask:
    """Comment on a post."""
    content = f"{draw.pick(PEOPLE)} would like the {draw.pick(THINGS)}"
    text = draw.say(
        f"Comment '{content}' on tweet {number}.",
        f"Reply to tweet {number} with the comment '{content}'.",
        f"Under tweet {number}, write '{content}'.",
    )
    call = ("comment", {"tweet_id": number, "comment_content": content})
    return ask(text, f"The comment is under tweet {number}.", call)


def pass_on(draw: Draw, number: int) -> Ask:
    """Retweet."""
    text = draw.say(
        f"Retweet number {number}.",
        f"Share tweet {number} with my followers.",
        f"Please pass tweet {number} on.",
    )
    return ask(text, f"Tweet {number} is shared.", ("retweet", {"tweet_id": number}))


def follow(draw: Draw) -> Ask:
    """Follow somebody."""
    name = f"{draw.pick(PEOPLE).lower()}{draw.number(10, 99)}"
    text = draw.say(
        f"Follow {name}.",
        f"I want to see what {name} writes, so follow that account.",
        f"Add {name} to those I follow.",
    )
    return ask(text, f"You follow {name} now.", ("follow_user", {"username_to_follow": name}))


def unfollow(draw: Draw, name: str) -> Ask:
    """Stop following somebody."""
    text = draw.say(
        f"Stop following {name}.",
        f"I have read enough of {name}, unfollow that account.",
        f"Remove {name} from those I follow.",
    )
    call = ("unfollow_user", {"username_to_unfollow": name})
    return ask(text, f"You follow {name} no longer.", call)


def mention(draw: Draw, number: int) -> Ask:
    """Mention people."""
    names = [f"@{draw.pick(PEOPLE).lower()}" for _ in range(2)]
    text = draw.say(
        f"Mention {names[0]} and {names[1]} in tweet {number}.",
        f"Tweet {number} should mention {names[0]} and {names[1]}.",
        f"Bring {names[0]} and {names[1]} into tweet {number} as mentions.",
    )
    call = ("mention", {"tweet_id": number, "mentioned_usernames": names})
    return ask(text, f"They are mentioned in tweet {number}.", call)
