/** Builds the output items of a response from the parts of an answer, with the events that announce them. */
import type { ChatPart } from '@winnow/engine';
import type { ChatStep } from '../../requests/answer-steps.js';
import type { OutputItem, OutputPart, ResponseStreamEvent } from './schemas.js';

type Logprobs = ChatStep['logprobs'];
/** An event before it gets its number. */
type Unnumbered<Event = ResponseStreamEvent> = Event extends unknown ? Omit<Event, 'sequence_number'> : never;
export type OutputEvent = Unnumbered;
type Status = OutputItem['status'];

export class OutputWriter {
  readonly #requestId: string;
  readonly #done: OutputItem[] = [];
  #open: OpenItem | undefined;

  constructor(requestId: string) {
    this.#requestId = requestId;
  }

  /** The items that have ended. */
  get items(): readonly OutputItem[] {
    return this.#done;
  }

  /** @param logprobs of the tokens of the part, if they are wanted */
  eventsOf(part: ChatPart, logprobs: Logprobs): OutputEvent[] {
    switch (part.type) {
      case 'text':
      case 'reasoning': {
        const type = part.type === 'text' ? 'message' : 'reasoning';
        const opened = this.#open?.type === type ? [] : [...this.end('completed'), ...this.#begin(type)];
        return [...opened, ...(this.#open as OpenItem).add(part.text, logprobs)];
      }
      case 'tool-call-start':
        return [...this.end('completed'), ...this.#begin('function_call', part)];
      case 'tool-call-delta':
        return this.#open?.add(part.arguments, []) ?? [];
      case 'tool-call':
        return this.end(part.isComplete ? 'completed' : 'incomplete');
    }
  }

  /** Ends the open item. */
  end(status: Status): OutputEvent[] {
    if (this.#open === undefined) return [];
    const { events, item } = this.#open.end(status);
    this.#open = undefined;
    this.#done.push(item);
    return events;
  }

  #begin(type: OutputItem['type'], call?: { readonly id: string; readonly name: string }): OutputEvent[] {
    const index = this.#done.length;
    this.#open = new OpenItem(type, `${prefixes[type]}_${this.#requestId}_${index}`, index, call);
    return this.#open.begin();
  }
}

const prefixes: Readonly<Record<OutputItem['type'], string>> = { message: 'msg', reasoning: 'rs', function_call: 'fc' };

/** An item in progress. */
class OpenItem {
  readonly type: OutputItem['type'];
  readonly #id: string;
  readonly #index: number;
  readonly #call: { readonly id: string; readonly name: string };
  readonly #logprobs: Logprobs = [];
  #text = '';

  constructor(type: OutputItem['type'], id: string, index: number, call = { id: '', name: '' }) {
    this.type = type;
    this.#id = id;
    this.#index = index;
    this.#call = call;
  }

  begin(): OutputEvent[] {
    const added: OutputEvent = {
      type: 'response.output_item.added',
      output_index: this.#index,
      item: this.#item('in_progress', false),
    };
    if (this.type === 'function_call') return [added];
    return [added, { type: 'response.content_part.added', ...this.#place(), part: this.#part() }];
  }

  add(text: string, logprobs: Logprobs): OutputEvent[] {
    this.#text += text;
    this.#logprobs.push(...logprobs);
    const { item_id, output_index } = this.#place();
    if (this.type === 'function_call') {
      return [{ type: 'response.function_call_arguments.delta', item_id, output_index, delta: text }];
    }
    if (this.type === 'reasoning') return [{ type: 'response.reasoning_text.delta', ...this.#place(), delta: text }];
    return [{ type: 'response.output_text.delta', ...this.#place(), delta: text, logprobs }];
  }

  end(status: Status): { readonly events: OutputEvent[]; readonly item: OutputItem } {
    const item = this.#item(status, true);
    const ended: OutputEvent = { type: 'response.output_item.done', output_index: this.#index, item };
    return { item, events: [...this.#doneEvents(), ended] };
  }

  #doneEvents(): OutputEvent[] {
    const { item_id, output_index } = this.#place();
    const text = this.#text;
    if (this.type === 'function_call') {
      const { name } = this.#call;
      return [{ type: 'response.function_call_arguments.done', item_id, output_index, name, arguments: text }];
    }
    const done: OutputEvent =
      this.type === 'reasoning'
        ? { type: 'response.reasoning_text.done', ...this.#place(), text }
        : { type: 'response.output_text.done', ...this.#place(), text, logprobs: this.#logprobs };
    return [done, { type: 'response.content_part.done', ...this.#place(), part: this.#part() }];
  }

  #place(): { item_id: string; output_index: number; content_index: 0 } {
    return { item_id: this.#id, output_index: this.#index, content_index: 0 };
  }

  #part(): OutputPart {
    if (this.type === 'reasoning') return { type: 'reasoning_text', text: this.#text };
    return { type: 'output_text', text: this.#text, annotations: [], logprobs: [...this.#logprobs] };
  }

  /** @param hasContent false while it begins */
  #item(status: Status, hasContent: boolean): OutputItem {
    const id = this.#id;
    if (this.type === 'function_call') {
      return {
        type: 'function_call',
        id,
        call_id: this.#call.id,
        name: this.#call.name,
        arguments: this.#text,
        status,
      };
    }
    const part = this.#part();
    if (part.type === 'reasoning_text') {
      return { type: 'reasoning', id, status, summary: [], content: hasContent ? [part] : [] };
    }
    return { type: 'message', id, role: 'assistant', status, content: hasContent ? [part] : [] };
  }
}
