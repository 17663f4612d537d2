"""Questions of reasoning-gym in other words: what finds the values of a question, and sentences that have them too."""

from __future__ import annotations

REWORDINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "chain_sum": (r": (?P<x>.+) =", ("What do you get for {x}?", "{x} comes to how much?", "Evaluate the sum {x}")),
    "gcd": (
        r"numbers: (?P<x>.+?)\. Give",
        ("Which is the largest integer that divides all of {x}?", "{x}: what is their highest common factor?"),
    ),
    "base_conversion": (
        r"base-(?P<a>\w+) number (?P<x>\w+) to base-(?P<b>\w+)",
        (
            "In base {a} somebody wrote {x}. How is that written in base {b}?",
            "Rewrite {x}, read in base {a}, in base {b}.",
        ),
    ),
    "spell_backward": (
        r": (?P<x>\w+)$",
        ("Write {x} in reverse order.", "Which word is {x} when it is read from the end?"),
    ),
    "simple_equations": (
        r"(?:for |of )(?P<v>\w)(?: in the equation)?: (?P<x>.+)",
        ("{x}. Which {v} makes this true?", "We know that {x}. What must {v} be?"),
    ),
    "lcm": (
        r"numbers: (?P<x>.+)$",
        ("Which is the smallest integer that all of {x} divide?", "{x}: at which count do they first coincide?"),
    ),
    "products": (r": (?P<x>.+?)\. Give", ("What do you get for {x}?", "{x} comes to how much?")),
    "count_primes": (
        r"between (?P<a>\d+) and (?P<b>\d+)",
        ("From {a} up to {b}, ends included, how many integers have exactly two divisors?", "Primes in [{a}, {b}]?"),
    ),
    "caesar_cipher": (r"text: (?P<x>.+?)\. Provide", ("Somebody shifted each letter: {x}. Undo it.", "Decipher: {x}")),
    "prime_factorization": (
        r"of (?P<x>\d+)",
        ("Write {x} as a product of primes.", "Which primes, multiplied, make {x}?"),
    ),
    "countdown": (
        r"Calculate (?P<n>-?\d+) using all of these numbers: (?P<x>.+?)\.",
        ("Combine {x} so that {n} comes out.", "From {x}, with + - * /, make {n}."),
    ),
    "simple_integration": (r"antiderivative: (?P<x>.+?)\nWhen", ("Integrate {x}.", "Which function has {x}?")),
    "intermediate_integration": (r"antiderivative: (?P<x>.+?)\nWhen", ("Integrate {x}.", "Which function has {x}?")),
    "word_sequence_reversal": (
        r"words: (?P<x>.+)$",
        ("Write {x} from the last one to the first.", "In the opposite order, what is {x}?"),
    ),
    "advanced_geometry": (
        r"coordinates (?P<x>.+), find the (?P<what>.+?)\. For",
        ("A triangle has {x}. Give the {what}.", "What is the {what}, where {x}?"),
    ),
    "basic_arithmetic": (r"Calculate (?P<x>.+)\.$", ("What do you get for {x}?", "{x} comes to how much?")),
    "complex_arithmetic": (r"^(?P<verb>\w+) the complex numbers: (?P<x>.+)$", ("What is {x}?", "Work out {x}.")),
    "number_sequence": (r"^(?P<x>.+), \?$", ("Which number goes on after {x}?", "{x}: what comes next?")),
    "palindrome_generation": (
        r"letters: (?P<x>.+)$",
        ("Arrange {x} so that both directions read the same.", "Which palindrome has just the letters {x}?"),
    ),
    "binary_alternation": (
        r"alternating: (?P<x>[01]+)$",
        ("How many exchanges make {x} change at every step?", "Fewest swaps until {x} has no equal neighbours?"),
    ),
    "polynomial_multiplication": (
        r"(?:expression|of|Calculate|following):? (?P<x>.+)\nWhen",
        ("Multiply {x} out.", "Expand {x} and collect equal powers."),
    ),
    "power_function": (
        r"Compute (?P<x>\S+?)\^(?P<n>\S+?)\. ",
        ("Raise {x} to the power {n}; three significant digits, please.", "{x} ** {n} is about how much?"),
    ),
    "count_bits": (
        r"number (?P<x>\d+)",
        ("Write {x} in base two. How often does the digit one occur?", "popcount({x})?"),
    ),
    "bitwise_arithmetic": (r"value\.\n(?P<x>.+)$", ("Evaluate {x} and write it in hexadecimal.", "{x} equals?")),
    "fraction_simplification": (
        r"frac\{(?P<a>\d+)\}\{(?P<b>\d+)\}",
        ("Reduce {a}/{b} as far as possible.", "{a} over {b}: what is that in lowest terms?"),
    ),
    "simple_geometry": (
        r"are: (?P<x>.+?)\. What",
        ("All angles of a polygon but one are {x}. How large is the missing one?", "Which angle completes {x}?"),
    ),
    "number_filtering": (
        r"(?P<which>smaller|larger) than (?P<n>\S+) in this list: (?P<x>\[.+\])",
        ("From {x}, drop whatever is {which} than {n}.", "Which of {x} stay when those {which} than {n} go?"),
    ),
    "decimal_arithmetic": (r"\n(?P<x>.+) = \?", ("What is {x}, to 12 digits?", "Evaluate {x} with twelve digits.")),
    "syllogism": (
        r"(?s)1\. (?P<a>.+?)\n2\. (?P<b>.+?)\n.+that:\n(?P<c>.+?)\?",
        ("Suppose: {a}. Suppose too: {b}. Must it be so that {c}?", 'Given "{a}" and "{b}", is "{c}" valid?'),
    ),
    "letter_counting": (
        r"letter \"(?P<a>\w)\" appear in the text: \"(?P<x>.+)\"",
        ('In "{x}", count each "{a}".', 'Go through "{x}". What is the frequency of "{a}"?'),
    ),
    "leg_counting": (
        r"have (?P<x>.+)\?",
        ("{x}: on how many feet do they all stand?", "A zoo owns {x}. Sum up the legs."),
    ),
    "word_sorting": (
        r"in (?P<how>\w+) order .+: (?P<x>.+)$",
        ("Put {x} in {how} alphabetic order.", "Bring into {how} order: {x}"),
    ),
    "course_schedule": (
        r"of (?P<n>\d+) courses[^\[]+\[i\][^\[]+(?P<x>\[.+\])",
        ("A pupil wants {n} lessons, each pair needs its second one before: {x}. Is that possible?",),
    ),
    "sentence_reordering": (r"sentence: (?P<x>.+)$", ("Which sentence has these words: {x}", "Untangle this: {x}")),
    "isomorphic_strings": (
        r"otherwise:\n(?P<a>\w+) (?P<b>\w+)$",
        ("Does a one-to-one exchange of letters make {b} of {a}?", "Have {a} and {b} the same pattern of letters?"),
    ),
    "ransom_note": (
        r"note: (?P<a>\w+)\nMagazine: (?P<b>\w+)",
        ("Cut letters from {b}. Are they enough to glue {a}?", "Is {a} contained, as a bag of letters, in {b}?"),
    ),
    "shortest_path": (
        r"(?s)grid:\n(?P<x>.+)$",
        (
            "Lead the robot at the asterisk to the hash mark, past each X:\n{x}",
            "{x}\nGo from * to # in the fewest moves.",
        ),
    ),
    "rotate_matrix": (
        r"(?s)by (?P<n>\d+) degrees clockwise:\n(?P<x>.+)$",
        ("Turn this table to the right by {n} degrees.\n{x}", "{x}\nWhat does this look like after {n} degrees?"),
    ),
    "group_anagrams": (
        r"anagrams:\n(?P<x>.+)$",
        ("Which of {x} have the same letters?", "Sort {x} into classes by their letters."),
    ),
    "jugs": (
        r"(?s)water: (?P<x>.+?)\nAnd your target is: (?P<n>\d+) ",
        ("With jars of {x}, measure {n} litres.", "Measure {n} litres; there are only containers of size {x}."),
    ),
    "mini_sudoku": (
        r"(?s)puzzle:\n(?P<x>.+?)\nFormat",
        ("Put digits into the blanks, none twice in a line or block:\n{x}", "{x}\nComplete this small sudoku."),
    ),
    "rotten_oranges": (
        r"(?s)fresh orange:\n(?P<x>.+)$",
        (
            "Rot spreads from each 2 to the 1 beside it in a minute. When is all rotten?\n{x}",
            "{x}\nHow long until it is over?",
        ),
    ),
    "largest_island": (
        r"(?s)grid:\n(?P<x>.+?)\n\n",
        ("{x}\nHow many ones hang together at most?", "In this map ones are land. Measure the biggest land:\n{x}"),
    ),
    "modulo_grid": (
        r"(?s)\n(?P<x>[✅❌❔\n]+)$",
        ("What is hidden in this pattern?\n{x}", "{x}\nReplace what is unknown."),
    ),
    "family_relationships": (
        r"(?s)^(?P<x>.+?)\n\n(?:What is|What relation is|How is) (?P<a>\w+) (?:related )?to (?P<b>\w+)\?",
        ("{x} How would {b} call {a}?", "Here is a family. {x} Which relative of {b} is {a}?"),
    ),
    "acre": (
        r"(?s)results:\n(?P<x>.+?)\n\nNew test case:\n(?P<y>.+?)\n",
        (
            "A box lights up, or not, when things lie on it. We saw:\n{x}\nNow {y} lies on it. Does it light up?",
            "What does a lamp do under {y}? It did the following before.\n{x}",
        ),
    ),
    "maze": (
        r"(?s)from '(?P<a>.)' \(start\) to '(?P<b>.)' \(goal\):\s+```\n(?P<x>.+?)\n```"
        r"\nLegend: '(?P<w>.)' = Wall, '(?P<p>.)'",
        (
            "{x}\nHow long is the shortest way through here from {a} to {b}? One may step on {p}, never on {w}.",
            "A mouse sits on {a}, and its cheese lies on {b}. It walks on {p}; {w} stops it. Count its steps.\n{x}",
        ),
    ),
    "zebra_puzzles": (
        r"(?s)There are (?P<n>\d+) houses.+?characteristics:\n(?P<x>.+)\n\nWhat is (?P<q>.+?)\?",
        (
            "In a street live {n} neighbours, of whom this is known:\n{x}\nFind out the {q}.",
            "Work out the {q}. There are {n} homes, side by side, and these clues:\n{x}",
        ),
    ),
    "knight_swap": (
        r"(?s)```\n(?P<x>.+?)\n```.+3\. (?P<s>\w) moves first",
        (
            "Here is a small chess board:\n{x}\nCan its two colours exchange places? {s} begins.",
            "{s} is to move. Let white and black change sides, if that can be done.\n{x}",
        ),
    ),
    "propositional_logic": (
        r"(?s)Given:\n(?P<x>.+)\.What can",
        ("Suppose that all of this holds:\n{x}\nState something that follows.", "{x}\nDerive a formula from these."),
    ),
    "survo": (
        r"(?s)(?:puzzle|matrix|matrix is):\n(?P<x>[\d \n]+)\n[a-zT].+?(?P<n>\[.+?\])",
        (
            "{x}\nThe zeros stand for holes, and lines end with their totals. Fill in {n}, each once.",
            "Place {n} on the zeros of this table so that its margins are right:\n{x}",
        ),
    ),
    "tsumego": (
        r"(?s)```\n(?P<x>.+?)\n```",
        (
            "It is Black's turn in this game of Go:\n{x}\nWhich point takes most stones?",
            "{x}\nFind Black's best capture.",
        ),
    ),
    "aiw": (
        r"^(?P<a>\w+) has (?P<n>\d+) (?P<k>[\w ]+?) and (?:s?he) also has (?P<m>\d+) (?P<l>[\w ]+?)\. "
        r"How many (?P<w>[\w ]+?) does (?P<b>.+?) have\?",
        (
            "There are {n} {k} and {m} {l} of {a}. Count the {w} of {b}.",
            "Tell me the number of {w} that {b} can have, when {a} has {n} {k}, and {m} {l} besides.",
        ),
    ),
    "emoji_mystery": (
        r"from the emoji: (?P<x>\S+)",
        ("Somebody hid a message in {x}. What does it say?", "Which text is inside of {x}?"),
    ),
    "self_reference": (
        r"(?s)solutions: *\n(?P<x>.+)$",
        ("{x}\nIn how many ways can these be true and false together?", "Count the consistent assignments.\n{x}"),
    ),
    "palindrome_partitioning": (
        r"into palindromes: (?P<x>\w+)$",
        (
            "Cut {x} into pieces that are equal from both ends, in all ways.",
            "How may one split {x} so that each part mirrors?",
        ),
    ),
    "n_queens": (
        r"(?s)place (?P<n>\d+) queen\(s\).+?\n(?P<x>.+)$",
        ("{x}\nAdd {n} ladies to this position without a threat.", "Put {n} more on this board, out of reach:\n{x}"),
    ),
    "mahjong_puzzle": (
        r"(?s)cards (?P<x>\w+),.+?:\n(?P<r>Round 1.+)$",
        (
            "Somebody holds {x}.\n{r}\nWhat is called at last?",
            "Play these draws with the hand {x}, and say how the last of them counts.\n{r}",
        ),
    ),
    "sokoban": (
        r"(?s)puzzle:\s+(?P<x>.+)$",
        ("Push all crates home:\n{x}", "Which moves clear up this warehouse?\n{x}"),
    ),
    "coin_flip": (
        r"(?P<k>exactly|at least|at most) (?P<n>\d+) (?P<s>\w+) in (?P<m>\d+)",
        (
            "A coin is thrown {m} times. How likely is it that {k} {n} throws show {s}?",
            "{k} {n} {s} from {m} tosses: how probable is that?",
        ),
    ),
    "sudoku": (
        r"(?s)puzzle:\n(?P<x>.+?)\nRespond",
        ("Complete this so that all rows, columns and blocks have nine digits:\n{x}", "{x}\nFill the blanks."),
    ),
    "bf": (
        r"(?s)output\?\n\n(?P<x>.+?)\n\n(?:Respond|Provide)",
        ("Run this in your head, and write what it prints:\n{x}", "{x}\nWhat appears on the screen?"),
    ),
    "quantum_lock": (
        r"(?s)Start: (?P<a>\S+) \((?P<c>\w+)\)\nTarget: (?P<t>\S+)\nButtons:\n(?P<x>.+)$",
        (
            "A display shows {a}, its lamp is {c}. There are keys:\n{x}\nGet to {t} with as few as possible.",
            "Reach {t} from {a}, where the lamp is {c}, by the operations below.\n{x}",
        ),
    ),
    "figlet_font": (
        r"(?s)^[^\n]*\n(?P<x>.+)$",
        ("These are big letters made of small ones. Read them.\n{x}", "{x}\nWhat is written here?"),
    ),
    "futoshiki": (
        r"(?s)puzzle:\n\n(?P<x>.+?)\n\nEnsure",
        ("Fill the square, no number twice in a line, so that all signs hold:\n{x}", "{x}\nReplace each blank."),
    ),
}
