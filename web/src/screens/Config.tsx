import type { Json, Lock } from "../api/types"
import { useRun } from "../api/run"
import { count } from "../format"
import { Copy, Empty, ErrorLine, Panel, Pill, Skeleton } from "../parts/basics"
import { Safe } from "../parts/Text"
import { NotBegun } from "./NotBegun"
import { RunHead } from "./RunHead"
import { plain } from "./ScoreCard"

/** What a run was made with: its settings, and the versions and digests of its lock. */
export default function Config({ run: key }: { run: string }) {
  const { data: run, error, slow } = useRun(key)
  if (!run && error) return <NotBegun run={key} error={error} />
  if (!run) return slow ? <Skeleton lines={12} /> : null
  const settings = run.config !== null && typeof run.config === "object" ? Object.entries(run.config) : []
  return (
    <div className="screen">
      <RunHead run={run} here="config" />
      {settings.length > 0 ? (
        <Panel title="Settings" actions={<span className="quiet pad-right">run.json</span>}>
          <Facts rows={settings} />
        </Panel>
      ) : (
        <Empty title="No settings are stored with this run" />
      )}
      {run.lock ? (
        <Locked lock={run.lock} />
      ) : (
        <p className="quiet">This run has no wander.lock: an older version made it.</p>
      )}
    </div>
  )
}

function Facts({ rows }: { rows: [string, Json][] }) {
  return (
    <dl className="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>
            <Safe text={name} />
          </dt>
          <dd className={value === null ? "quiet" : "mono"}>
            {value === null ? "not set" : <Safe text={plain(value)} />}
          </dd>
        </div>
      ))}
    </dl>
  )
}

function Locked({ lock }: { lock: Lock }) {
  if (lock.problem) return <ErrorLine error={lock.problem} />
  const packages = Object.entries(lock.packages)
  const command = lock.command && ["wander", ...lock.command].join(" ")
  return (
    <>
      {lock.made_by.map((version, at) => (
        <Panel
          key={`${at} ${version.digest}`}
          title={lock.made_by.length === 1 ? "Made by" : `Version ${at + 1} of ${lock.made_by.length}`}
          actions={
            <span className="mono pad-right">
              <Safe text={version.digest} />
            </span>
          }
        >
          <dl className="facts">
            {Object.entries(version.inputs).map(([name, digest]) => (
              <div key={name}>
                <dt>
                  <Safe text={name} /> {version.changed.includes(name) && <Pill tone="warn">changed</Pill>}
                </dt>
                <dd className="mono">
                  <Safe text={digest} />
                </dd>
              </div>
            ))}
          </dl>
        </Panel>
      ))}
      <Panel title="Machine" actions={command && <Copy text={command} what="Copy first command" />}>
        <Facts
          rows={[
            ["Python", lock.python],
            ["Platform", lock.platform],
            ...(command ? [["Command", command] as [string, Json]] : []),
          ]}
        />
      </Panel>
      <Panel
        title={`Packages (${count(packages.length)})`}
        actions={<span className="quiet pad-right">wander.lock</span>}
      >
        <details className="pad">
          <summary>Versions of every installed package</summary>
          <Facts rows={packages} />
        </details>
      </Panel>
    </>
  )
}
