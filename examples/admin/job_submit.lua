-- Slurm's job_submit plugin: refuses scripts of slurmray whose Ray runs code for everyone who reaches its ports.
--   slurm.conf   JobSubmitPlugins=lua     (this file is /etc/slurm/job_submit.lua)
-- It saves users a mistake. Who wants to start Ray without a token needs no slurmray for that.

function slurm_job_submit(job, partitions, uid)
	local script = job.script or ""
	if script:find("\n# slurmray-sha256: ", 1, true) and script:find('\n    "auth": "none",\n', 1, true) then
		slurm.log_user("ray.auth: 'none' is not allowed here: set it to token, and render the script again")
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
	return slurm.SUCCESS
end
