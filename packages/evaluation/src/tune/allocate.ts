/** Distributes a budget of divergence over the layers of a model. */

/** A policy that a layer may have: what it costs, and what it diverges by when only this layer has it. */
export interface Choice {
  /** Relative cost of the layer; any unit. */
  readonly cost: number;
  /** Mean KL divergence, in nats. */
  readonly divergence: number;
}

/** Cells of the divergence axis. Each layer's divergence is rounded up to a cell. */
const numCells = 1000;

/**
 * Selects a choice per layer with the least total cost whose divergences add up to at most `bound`: the
 * multiple-choice knapsack problem, by dynamic programming over the bound in cells. Divergences of layers add up as
 * long as they are small, because that of a softmax is quadratic in independent changes of its logits. Rounding up
 * makes the sum exceed the exact one by at most `layers.length / 1000` of the bound. Cost: O(layers x choices x cells).
 * @param layers the choices of each layer, among them one without divergence
 * @returns the index of the choice of each layer; ties are resolved toward the first
 */
export function allocate(layers: readonly (readonly Choice[])[], bound: number): number[] {
  const cellsOf = ({ divergence }: Choice): number =>
    divergence === 0 ? 0 : bound === 0 ? Infinity : Math.ceil((numCells * divergence) / bound);
  // best[c]: least cost of the layers so far with at most c cells
  let best = new Float64Array(numCells + 1);
  const chosen = layers.map((choices) => {
    const next = new Float64Array(numCells + 1).fill(Infinity);
    const picks = new Int32Array(numCells + 1).fill(-1);
    for (const [index, choice] of choices.entries()) {
      const cells = cellsOf(choice);
      for (let at = cells; at <= numCells; at++) {
        const cost = (best[at - cells] as number) + choice.cost;
        if (cost >= (next[at] as number)) continue;
        next[at] = cost;
        picks[at] = index;
      }
    }
    best = next;
    return picks;
  });
  const indices: number[] = [];
  for (let layer = layers.length - 1, at = numCells; layer >= 0; layer--) {
    const index = (chosen[layer] as Int32Array)[at] as number;
    indices.unshift(index);
    at -= cellsOf((layers[layer] as readonly Choice[])[index] as Choice);
  }
  return indices;
}
