#!/bin/bash
# In the style of Search-R1 with Docker: the retriever has an image of its own, on the head node.
#SBATCH --job-name=search --nodes=1 --gpus-per-node=8 --time=20:00:00
TRAIN_IMAGE=registry.example.org/search-r1:0.3
RETRIEVER_IMAGE=registry.example.org/retriever:faiss
INDEX=/data/wiki/e5_Flat.index

docker run --rm -d --name trainer --network host --gpus all --shm-size 32g \
    -v /data:/data -v /models:/models -w /data/Search-R1 $TRAIN_IMAGE sleep infinity
docker exec trainer ray start --head --num-gpus 8
docker run --rm -d --name retriever --network host -v /data:/data $RETRIEVER_IMAGE \
    python retrieval_server.py --index_path $INDEX --topk 3 --port 8000
for try in {1..100}; do
    if curl -fs http://localhost:8000/docs >/dev/null; then break; fi
    sleep 6
done

docker exec -e WANDB_API_KEY="$WANDB_API_KEY" -e VLLM_ATTENTION_BACKEND=XFORMERS trainer \
    python3 -m verl.trainer.main_ppo data.train_files=/data/nq/train.parquet \
    actor_rollout_ref.model.path=/models/Qwen2.5-3B retriever.url=http://localhost:8000/retrieve retriever.topk=3 \
    trainer.nnodes=1 trainer.n_gpus_per_node=8 |& tee search.log
docker kill retriever trainer
