import type { Opened, Trajectory } from "./types"

/** The seat that figures of one seat are of: the first that learns, or the first where none does. */
export const mainSeat = ({ trajectories }: Pick<Opened, "trajectories">): Trajectory | undefined =>
  trajectories.find(one => one.trainable) ?? trajectories[0]
