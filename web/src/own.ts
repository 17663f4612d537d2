/** Records whose names come from outside: a metric may be called `constructor` or `__proto__`. */

/** The record's own value of that name, never one that every object inherits. */
export const own = <T>(record: Readonly<Record<string, T>>, name: string | number): T | undefined =>
  Object.hasOwn(record, name) ? record[name] : undefined

/** Give the record a value of that name, whatever the name; returns the record. */
export function setOwn<T>(record: Record<string, T>, name: string | number, value: T): Record<string, T> {
  return Object.defineProperty(record, name, { value, enumerable: true, configurable: true, writable: true })
}
