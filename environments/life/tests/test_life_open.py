"""Lives with families, apps and names of one's own: from a file, and from installed packages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import fields

import pytest

from universe_consistency import check_universe
from wanderlust import rollout
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.tasks.registry import resolve_environment
from wanderlust_life.assistant_life import AssistantLife, scenario_of
from wanderlust_life.families.family import all_families, find_apps
from wanderlust_life.universes.generate import make_universe
from wanderlust_life.universes.personas import LEAST_NAMES, Persona, find_persona, locale_persona

KINDS = ("family", "app", "persona")


def rewards(env, tasks):
    """What the oracle and an idle agent earn in each task."""
    pairs = [(rollout(env, task, env.oracle(task)), rollout(env, task, env.players["nothing"]())) for task in tasks]

    async def play():
        return [[(await one).trajectories[0].score.reward for one in pair] for pair in pairs]

    return asyncio.run(play())


def finished(*words, folder):
    """A Python process that has ended."""
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A family, an app and a persona, as `wander world new` writes them."""
    place = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for kind in KINDS:
            with pytest.raises(SystemExit) as end:
                main(["world", "new", kind, f"my-{kind}"])
            assert not end.value.code
    return place


@pytest.fixture
def installed(folder, tmp_path, monkeypatch):
    """The same as installed packages, beside one that cannot be imported."""
    groups = {"family": "families", "app": "families", "persona": "personas"}
    points = {kind: f"my-{kind} = my_{kind}:{'PERSONA' if kind == 'persona' else f'my_{kind}'}" for kind in KINDS}
    points["broken"] = "broken = no_such_module:family"
    for kind, point in points.items():
        info = tmp_path / f"my_{kind}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: my-{kind}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(f"[wanderlust.{groups.get(kind, 'families')}]\n{point}\n")
        monkeypatch.syspath_prepend(str(folder / f"my-{kind}"))
    monkeypatch.syspath_prepend(str(tmp_path))
    all_families.cache_clear()
    yield
    all_families.cache_clear()


@pytest.mark.parametrize("kind", ["family", "app"])
def test_a_family_in_a_file_is_played_like_the_others(folder, kind):
    place = folder / f"my-{kind}" / f"my_{kind}.py"
    env = AssistantLife(f"{place}:my_{kind}")
    assert [one.name for one in AssistantLife(str(place)).families] == [f"my-{kind}"]
    tasks = [*env.tasks("eval")]
    assert tasks[0].id == f"my-{kind}/eval-0/1"
    assert rewards(env, tasks) == [[1.0, 0.0]] * len(tasks)
    assert ("Tickets" in [app.name for app in env.scenario(tasks[0]).apps]) == (kind == "app")


def test_installed_families_stand_beside_the_projects_own(installed):
    with pytest.warns(UserWarning, match="the families of broken are left out: .*no_such_module"):
        known = all_families()
    assert {"my-family", "my-app", "invite"} <= {*known}
    env = resolve_environment("life,families=my-app,persona=my-persona,levels=2").env
    tasks = [*env.tasks("eval")]
    assert [task.id for task in tasks] == ["my-app/eval-0/2/my-persona", "my-app/eval-1/2/my-persona"]
    assert rewards(env, tasks) == [[1.0, 0.0]] * 2
    again, first = scenario_of(tasks[0].id), env.scenario(tasks[0])
    assert [event.id for event in again.events] == [event.id for event in first.events]
    assert find_persona("my-persona").name == "my-persona"


def test_its_own_test_and_the_command_work(folder):
    for kind in KINDS:
        done = finished("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=folder / f"my-{kind}")
        assert done.returncode == 0, done.stdout
    place = folder / "my-app" / "my_app.py"
    words = ["world", "run", f"{place}:my_app", "--policy", "oracle"]
    done = finished("-m", "wanderlust.cli.main", *words, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_apps_of_ones_own_stand_in_every_family(folder):
    place = folder / "my-app" / "my_app.py"
    for named in (f"{place}:apps", f"{place}:Tickets"):
        env = AssistantLife(["invite"], levels=1, more_apps=named)
        task = next(iter(env.tasks("eval")))
        assert "Tickets" in [app.name for app in env.scenario(task).apps]
        assert rewards(env, [task]) == [[1.0, 0.0]]
    with pytest.raises(UsageError, match="two apps are called Tickets"):
        AssistantLife(f"{place}:my_app", more_apps=[f"{place}:Tickets"]).scenario(
            next(iter(AssistantLife(f"{place}:my_app").tasks("eval")))
        )
    with pytest.raises(UsageError, match="there is no app 'tickets'"):
        find_apps("tickets")


def test_halves_of_a_persona_share_no_name(folder):
    persona = find_persona(f"{folder / 'my-persona' / 'my_persona.py'}:PERSONA")
    train, held = persona.names("train"), persona.names("held")
    for kind in [field.name for field in fields(train)]:
        assert not {*getattr(train, kind)} & {*getattr(held, kind)}
    universes = [make_universe(3, "medium", split, persona=persona) for split in ("train", "held")]
    assert [check_universe(one) for one in universes] == [[], []]
    assert {one.last for one in universes[0].people.values() if one.last} <= {*train.surnames}
    assert universes[0].name == "my-persona-train-medium-3"


@pytest.mark.parametrize("locale", ["de_DE", "es_ES", "pl_PL", "tr_TR"])
def test_a_locale_gives_names_that_hold_together(locale):
    pytest.importorskip("faker")
    for split in ("train", "held"):
        universe = make_universe(0, "medium", split, persona=locale_persona(locale))
        assert check_universe(universe) == []
        assert all(one.email.isascii() and ".." not in one.email for one in universe.people.values())


def test_the_oracle_passes_in_another_locale():
    pytest.importorskip("faker")
    env = AssistantLife(levels=2, persona="fr_FR")
    tasks = [task for task in env.tasks("eval") if "eval-0" in task.id]
    assert len(tasks) > 20
    assert rewards(env, tasks) == [[1.0, 0.0]] * len(tasks)


WRONG_PERSONAS = {
    "too few surnames": ({"surnames": ["Only"]}, "has 1 surnames: 300 are needed"),
    "a name twice": ({"brands": ["Same"] * 8}, "has a name twice among its brands"),
    "a woman's name among the men": (
        {"men": lambda names: [*names["men"], names["women"][0]]}, "is among its women and its men",
    ),
    "a town that is a surname": (
        {"towns": lambda names: [*names["towns"], names["surnames"][0]]}, "among its surnames and its towns",
    ),
    "markup": ({"firms": lambda names: [*names["firms"], "<b>x</b>"]}, "among its firms is no name"),
    "a line break": ({"firms": lambda names: [*names["firms"], "a\nb"]}, "among its firms is no name"),
    "a long name": ({"places": lambda names: [*names["places"], "x" * 31]}, "among its places is no name"),
    "no name of its own": ({"name": "../up"}, "is no name of a persona"),
}  # fmt: skip


@pytest.mark.parametrize("change", WRONG_PERSONAS)
def test_a_persona_that_contradicts_itself_is_one_line(folder, change):
    persona = find_persona(f"{folder / 'my-persona' / 'my_persona.py'}:PERSONA")
    names = {kind: getattr(persona, kind) for kind in ("name", *LEAST_NAMES)}
    changes, reason = WRONG_PERSONAS[change]
    with pytest.raises(UsageError, match=reason) as refused:
        Persona(**names | {kind: value(names) if callable(value) else value for kind, value in changes.items()})
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("life,families=nothing", "there is no family 'nothing'"),
        ("life,families=missing.py", "there is no file missing.py"),
        ("life,families=json:dumps", "json:dumps is no family"),
        ("life,persona=nobody", "there is no persona 'nobody'"),
        ("life,persona=json:dumps", "json:dumps is no Persona"),
        ("life,persona=xx_XX", "there are no names for xx_XX"),
        ("life,persona=ja_JP", "in Latin letters"),
    ],
)
def test_what_cannot_be_found_is_one_line(spec, reason):
    if "_" in spec:
        pytest.importorskip("faker")
    with pytest.raises(Exception, match=reason) as refused:
        resolve_environment(spec)
    assert len(str(refused.value).splitlines()) == 1


def test_a_folder_that_exists_is_left_alone(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for words in (["family", "my-family"], ["universe", "x"], ["app", "1x"]):
        with pytest.raises(SystemExit) as end:
            main(["world", "new", *words])
        assert end.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_private_tasks_need_the_secret(tmp_path):
    for name, text in (("mine", "a line of my own\n"), ("yours", "another")):
        (tmp_path / name).write_text(text)
    mine, again, yours = (AssistantLife(["invite"], secret=str(tmp_path / name)) for name in ("mine", "mine", "yours"))
    ids = [[task.id for task in env.tasks("eval")] for env in (mine, again, yours, AssistantLife(["invite"]))]
    assert ids[0] == ids[1]
    assert not {*ids[0]} & {*ids[2]} | {*ids[0]} & {*ids[3]}
    starts = {mine.scenario(task).start for task in mine.tasks("eval")}
    assert len(starts) > 2, "every size and seed has a universe of its own"
    assert rewards(mine, [*mine.tasks("eval")]) == [[1.0, 0.0]] * 6
    assert [task.id for _, task in zip(range(3), mine.tasks(), strict=False)] == [
        task.id for _, task in zip(range(3), AssistantLife(["invite"]).tasks(), strict=False)
    ]
    (tmp_path / "empty").write_text("\n")
    for wrong in ("empty", "missing"):
        with pytest.raises(UsageError, match="the secret"):
            AssistantLife(secret=str(tmp_path / wrong))
