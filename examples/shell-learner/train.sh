#!/bin/sh
# A learner: runs in the folder of the submitted code, once per process. What it prints becomes log events; a line that is a JSON object with
# "penstock":"metrics" becomes a metric event. SIGTERM (halt, terminate) means: save, then leave. A resumed job starts it again, with the
# same CHECKPOINT_DIR.
saved="$CHECKPOINT_DIR/step-$LEARNER_ID"
step=$(cat "$saved" 2>/dev/null || echo 0)
stop=no
trap 'stop=yes' TERM

save() { # first beside it, then in its place: a reader never sees half a file
    echo "$step" >"$saved.new" && mv "$saved.new" "$saved"
}

echo "learner $LEARNER_ID of $NUM_LEARNERS of $TRAINING_ID begins at step $step"
while [ "$step" -lt 10 ]; do
    if [ "$stop" = yes ]; then
        save
        echo "told to stop: saved step $step"
        exit 0
    fi
    step=$((step + 1))
    loss=$(awk -v s="$step" 'BEGIN { printf "%.4f", 1 / s }')
    echo "step $step: loss $loss"
    echo "{\"penstock\":\"metrics\",\"group\":\"train\",\"step\":$step,\"loss\":$loss}"
    save
    sleep 0.2
done
echo "learner $LEARNER_ID was here" >"$RESULT_DIR/learner-$LEARNER_ID.txt"
echo "done"
