import { useEffect, useRef } from "react"
import { heard } from "../keys"

/** Every key that is heard on this screen. */
export function Help({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => void dialog.current?.showModal(), [])
  const known = heard().filter(({ what }, at, all) => what && all.findIndex(other => other.what === what) === at)
  return (
    <dialog ref={dialog} className="help" onClose={onClose} aria-label="Keyboard">
      <header className="panel-head">
        <h2>Keyboard</h2>
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
      </header>
      <dl>
        {known.map(({ keys, what }) => (
          <div key={what}>
            <dt>
              {keys.map(key => (
                <kbd key={key}>{key.replace("Arrow", "").replace("Escape", "Esc")}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </dialog>
  )
}
