/** Tracks which part of a program wrote which bytes of the arena, and which parts have copies. */
import type { TensorRef } from '@winnow/ops';

/**
 * Bytes `[begin, end)` of the arena, limited to the size of `tensor` in a step, that part `to` needs from part `from`.
 */
export interface PieceCopy {
  readonly from: number;
  readonly to: number;
  readonly begin: number;
  readonly end: number;
  readonly tensor: TensorRef;
}

/** Bytes `[begin, end)` that one record wrote. */
interface Piece {
  readonly begin: number;
  readonly end: number;
  readonly writer: number;
  readonly tensor: TensorRef;
  readonly holders: Set<number>;
}

export class ArenaPieces {
  /** None overlaps another. */
  #pieces: readonly Piece[] = [];

  /** Adds the copies that a part needs to read `[begin, end)`. */
  read(part: number, begin: number, end: number, copies: PieceCopy[]): void {
    for (const piece of this.#pieces) {
      if (piece.begin >= end || piece.end <= begin || piece.holders.has(part)) continue;
      copies.push({ from: piece.writer, to: part, begin: piece.begin, end: piece.end, tensor: piece.tensor });
      piece.holders.add(part);
    }
  }

  write(part: number, begin: number, end: number, tensor: TensorRef): void {
    const outside = this.#pieces.flatMap((piece): Piece[] => {
      if (piece.begin >= end || piece.end <= begin) return [piece];
      const rests = [
        { ...piece, end: begin, holders: new Set(piece.holders) },
        { ...piece, begin: end, holders: new Set(piece.holders) },
      ];
      return rests.filter((rest) => rest.begin < rest.end);
    });
    this.#pieces = [...outside, { begin, end, writer: part, tensor, holders: new Set([part]) }];
  }

  /** The part that wrote the byte at `begin`. */
  writerOf(begin: number): number | undefined {
    return this.#pieces.find((piece) => piece.begin <= begin && begin < piece.end)?.writer;
  }
}
