/** The option that names the image encoder of a GGUF model. */
import type { OptionNames } from '@winnow/tensor';
import type { ModelLocation } from './location.js';

export interface MmprojOptions {
  /**
   * The image encoder of a GGUF model, an `mmproj` file of llama.cpp; `false`: none. Default: a file `mmproj*.gguf` beside that of the
   * model, in Node; one that belongs to another model is not used, and a notice says so.
   */
  readonly mmproj?: ModelLocation | false;
}

export const mmprojNames: OptionNames<MmprojOptions> = { mmproj: true };
